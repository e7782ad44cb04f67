"""FindCoordinator: which broker looks after a group or a transactional id."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Int8, Int16, Int32, Since, String, Until


@dataclass(slots=True)
class FindCoordinatorRequest:
    api: ClassVar[ApiKey] = ApiKey.FIND_COORDINATOR

    key: Annotated[str, String, Until(3)] = ""
    key_type: Annotated[int, Int8, Since(1)] = 0
    coordinator_keys: Annotated[list[str], String, Since(4)] = field(default_factory=list)


@dataclass(slots=True)
class Coordinator:
    key: Annotated[str, String] = ""
    node_id: Annotated[int, Int32] = 0
    host: Annotated[str, String] = ""
    port: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None


@dataclass(slots=True)
class FindCoordinatorResponse:
    api: ClassVar[ApiKey] = ApiKey.FIND_COORDINATOR

    throttle_time_ms: Annotated[int, Int32, Since(1)] = 0
    error_code: Annotated[int, Int16, Until(3)] = 0
    error_message: Annotated[str | None, String, Since(1), Until(3)] = None
    node_id: Annotated[int, Int32, Until(3)] = 0
    host: Annotated[str, String, Until(3)] = ""
    port: Annotated[int, Int32, Until(3)] = 0
    coordinators: Annotated[list[Coordinator], Since(4)] = field(default_factory=list)
