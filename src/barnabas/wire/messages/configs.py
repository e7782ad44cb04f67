"""DescribeConfigs, AlterConfigs (replaces all), IncrementalAlterConfigs (changes some) and ListConfigResources."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Bool, Int8, Int16, Int32, Since, String


@dataclass(slots=True)
class DescribeConfigsResource:
    resource_type: Annotated[int, Int8] = 0
    resource_name: Annotated[str, String] = ""
    configuration_keys: Annotated[list[str] | None, String] = None


@dataclass(slots=True)
class DescribeConfigsRequest:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_CONFIGS

    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: Annotated[bool, Bool] = False
    include_documentation: Annotated[bool, Bool, Since(3)] = False


@dataclass(slots=True)
class DescribeConfigsSynonym:
    name: Annotated[str, String] = ""
    value: Annotated[str | None, String] = None
    source: Annotated[int, Int8] = 0


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    name: Annotated[str, String] = ""
    value: Annotated[str | None, String] = None
    read_only: Annotated[bool, Bool] = False
    config_source: Annotated[int, Int8] = -1
    is_sensitive: Annotated[bool, Bool] = False
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: Annotated[int, Int8, Since(3)] = 0
    documentation: Annotated[str | None, String, Since(3)] = None


@dataclass(slots=True)
class DescribeConfigsResult:
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None
    resource_type: Annotated[int, Int8] = 0
    resource_name: Annotated[str, String] = ""
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)


@dataclass(slots=True)
class DescribeConfigsResponse:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_CONFIGS

    throttle_time_ms: Annotated[int, Int32] = 0
    results: list[DescribeConfigsResult] = field(default_factory=list)


@dataclass(slots=True)
class AlterableConfig:
    name: Annotated[str, String] = ""
    value: Annotated[str | None, String] = None


@dataclass(slots=True)
class AlterConfigsResource:
    resource_type: Annotated[int, Int8] = 0
    resource_name: Annotated[str, String] = ""
    configs: list[AlterableConfig] = field(default_factory=list)


@dataclass(slots=True)
class AlterConfigsRequest:
    api: ClassVar[ApiKey] = ApiKey.ALTER_CONFIGS

    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: Annotated[bool, Bool] = False


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None
    resource_type: Annotated[int, Int8] = 0
    resource_name: Annotated[str, String] = ""


@dataclass(slots=True)
class AlterConfigsResponse:
    api: ClassVar[ApiKey] = ApiKey.ALTER_CONFIGS

    throttle_time_ms: Annotated[int, Int32] = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)


@dataclass(slots=True)
class IncrementalAlterableConfig:
    name: Annotated[str, String] = ""
    config_operation: Annotated[int, Int8] = 0
    value: Annotated[str | None, String] = None


@dataclass(slots=True)
class IncrementalAlterConfigsResource:
    resource_type: Annotated[int, Int8] = 0
    resource_name: Annotated[str, String] = ""
    configs: list[IncrementalAlterableConfig] = field(default_factory=list)


@dataclass(slots=True)
class IncrementalAlterConfigsRequest:
    api: ClassVar[ApiKey] = ApiKey.INCREMENTAL_ALTER_CONFIGS

    resources: list[IncrementalAlterConfigsResource] = field(default_factory=list)
    validate_only: Annotated[bool, Bool] = False


@dataclass(slots=True)
class IncrementalAlterConfigsResponse:
    api: ClassVar[ApiKey] = ApiKey.INCREMENTAL_ALTER_CONFIGS

    throttle_time_ms: Annotated[int, Int32] = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)


@dataclass(slots=True)
class ListConfigResourcesRequest:
    api: ClassVar[ApiKey] = ApiKey.LIST_CONFIG_RESOURCES

    resource_types: Annotated[list[int], Int8, Since(1)] = field(default_factory=list)
    """All that there are, where it is empty; version 0 asks for client metrics only."""


@dataclass(slots=True)
class ConfigResource:
    resource_name: Annotated[str, String] = ""
    resource_type: Annotated[int, Int8, Since(1)] = 16


@dataclass(slots=True)
class ListConfigResourcesResponse:
    api: ClassVar[ApiKey] = ApiKey.LIST_CONFIG_RESOURCES

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    config_resources: list[ConfigResource] = field(default_factory=list)
