"""Settings as Admin shows and changes them, and whose they are. A broker is asked itself for its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from barnabas.client.network.failures import check
from barnabas.client.network.routing import Cluster, Destination
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

MIN_IN_SYNC = "min.insync.replicas"


class ResourceType(IntEnum):
    """What settings can belong to."""

    TOPIC = 2
    BROKER = 4


class Resource(NamedTuple):
    """What settings belong to: a topic by its name, a broker by its id; "" stands for all brokers."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> "Resource":
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker: int | None = None) -> "Resource":
        """One broker, or what all of them share."""
        return cls(ResourceType.BROKER, "" if broker is None else str(broker))

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER and not self.name:
            return "All brokers"
        return f"{self.type.name.capitalize()} {self.name!r}"


class ConfigSource(IntEnum):
    """Where a setting's value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN


class Operation(IntEnum):
    """What an incremental change does to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Config:
    """One setting. The value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


def describe_configs(
    cluster: Cluster,
    resource: Resource,
    names: Iterable[str] | None,
    *,
    documentation: bool,
    timeout: float,
) -> list[Config]:
    """The settings of a topic or a broker, in order of their names."""
    keys = None if names is None else list(names)
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource.type, resource.name, keys)],
        include_documentation=documentation,
    )

    def ask() -> list[Config]:
        (found,) = _keeper_of(cluster, resource).call(request, DescribeConfigsResponse).results
        check(found.error_code, str(resource), found.error_message)
        return sorted(map(_config, found.configs), key=lambda config: config.name)

    return cluster.retry(ask, timeout=timeout)


def min_in_sync_replicas(cluster: Cluster, topics: Iterable[str], *, timeout: float) -> dict[str, int]:
    """min.insync.replicas of each of these topics, in one question."""
    resources = [DescribeConfigsResource(ResourceType.TOPIC, name, [MIN_IN_SYNC]) for name in topics]

    def ask() -> dict[str, int]:
        found = cluster.any().call(DescribeConfigsRequest(resources), DescribeConfigsResponse).results
        return {
            each.resource_name: int(config.value or 1)
            for each in found
            for config in each.configs
            if config.name == MIN_IN_SYNC
        }

    return cluster.retry(ask, timeout=timeout) if resources else {}


def alter_configs(
    cluster: Cluster,
    resource: Resource,
    wishes: Iterable[tuple[str, Operation, str | None]],
    *,
    validate_only: bool,
    timeout: float,
) -> None:
    """Change some settings and leave the others alone."""
    changes = [
        IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in wishes
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[IncrementalAlterConfigsResource(resource.type, resource.name, changes)],
        validate_only=validate_only,
    )

    def ask() -> None:
        keeper = _keeper_of(cluster, resource)
        (found,) = keeper.call(request, IncrementalAlterConfigsResponse).responses
        check(found.error_code, str(resource), found.error_message)

    cluster.retry(ask, timeout=timeout)


def changes_of(
    changes: Mapping[str, str | None], append: Mapping[str, str], subtract: Mapping[str, str]
) -> list[tuple[str, Operation, str | None]]:
    """What is to be done to each setting; None puts one back to its default."""
    wishes = [
        (name, Operation.DELETE if value is None else Operation.SET, value) for name, value in changes.items()
    ]
    wishes += [(name, Operation.APPEND, value) for name, value in append.items()]
    return wishes + [(name, Operation.SUBTRACT, value) for name, value in subtract.items()]


def _keeper_of(cluster: Cluster, resource: Resource) -> Destination:
    """The broker to ask about settings: a broker itself for its own, any broker for everything else."""
    if resource.type is not ResourceType.BROKER or not resource.name:
        return cluster.any()
    if not resource.name.isdigit():
        raise BarnabasError(f"A broker's name is its number, not {resource.name!r}.")
    if int(resource.name) not in [broker.id for broker in cluster.brokers()]:
        raise Refused(Code.RESOURCE_NOT_FOUND, f"There is no broker {resource.name} in the cluster.")
    return cluster.broker(int(resource.name))


def _config(found: DescribeConfigsResourceResult) -> Config:
    return Config(
        found.name,
        found.value,
        ConfigSource(found.config_source),
        found.read_only,
        found.is_sensitive,
        found.documentation,
    )
