"""DescribeCluster: the brokers and the controller, without any topic. UnregisterBroker: one that never comes back."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Bool, Int8, Int16, Int32, Since, String


@dataclass(slots=True)
class DescribeClusterRequest:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLUSTER

    include_cluster_authorized_operations: Annotated[bool, Bool] = False
    endpoint_type: Annotated[int, Int8, Since(1)] = 1


@dataclass(slots=True)
class DescribeClusterBroker:
    broker_id: Annotated[int, Int32] = 0
    host: Annotated[str, String] = ""
    port: Annotated[int, Int32] = 0
    rack: Annotated[str | None, String] = None


@dataclass(slots=True)
class DescribeClusterResponse:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLUSTER

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None
    endpoint_type: Annotated[int, Int8, Since(1)] = 1
    cluster_id: Annotated[str, String] = ""
    controller_id: Annotated[int, Int32] = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: Annotated[int, Int32] = -2147483648


@dataclass(slots=True)
class UnregisterBrokerRequest:
    api: ClassVar[ApiKey] = ApiKey.UNREGISTER_BROKER

    broker_id: Annotated[int, Int32] = 0


@dataclass(slots=True)
class UnregisterBrokerResponse:
    api: ClassVar[ApiKey] = ApiKey.UNREGISTER_BROKER

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None
