"""ApiVersions: what a broker speaks. Its response header is version 0 whatever the body is: see frames.py."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Bool, Int16, Int32, Int64, Since, String, Tag

BROKER_SOFTWARE = "barnabas-broker"
"""The client_software_name by which brokers know each other: they speak more with one another than with clients."""


@dataclass(slots=True)
class ApiVersionsRequest:
    api: ClassVar[ApiKey] = ApiKey.API_VERSIONS

    client_software_name: Annotated[str, String, Since(3)] = ""
    client_software_version: Annotated[str, String, Since(3)] = ""


@dataclass(slots=True)
class ApiVersion:
    api_key: Annotated[int, Int16] = 0
    min_version: Annotated[int, Int16] = 0
    max_version: Annotated[int, Int16] = 0


@dataclass(slots=True)
class SupportedFeatureKey:
    name: Annotated[str, String] = ""
    min_version: Annotated[int, Int16] = 0
    max_version: Annotated[int, Int16] = 0


@dataclass(slots=True)
class FinalizedFeatureKey:
    name: Annotated[str, String] = ""
    max_version_level: Annotated[int, Int16] = 0
    min_version_level: Annotated[int, Int16] = 0


@dataclass(slots=True)
class ApiVersionsResponse:
    api: ClassVar[ApiKey] = ApiKey.API_VERSIONS

    error_code: Annotated[int, Int16] = 0
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: Annotated[int, Int32, Since(1)] = 0
    supported_features: Annotated[list[SupportedFeatureKey], Tag(0), Since(3)] = field(default_factory=list)
    finalized_features_epoch: Annotated[int, Int64, Tag(1), Since(3)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], Tag(2), Since(3)] = field(default_factory=list)
    zk_migration_ready: Annotated[bool, Bool, Tag(3), Since(3)] = False
