"""Which setting holds, and where it comes from. PURE: an image and what the broker was started with in, rows out.

A topic's setting comes from the topic, else from the broker's setting of the same meaning: changed while it
runs (this broker, then all brokers), else given at its start, else the default.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.cluster.image import ClusterImage, TopicImage
from barnabas.config import BrokerConfig, broker_config, broker_settings, topic_settings
from barnabas.errors import Code, Refused
from barnabas.setting import ConfigError, Kind, Setting, render
from barnabas.types import BrokerId

ALL_BROKERS = ""


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as DescribeConfigs does."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Origin(NamedTuple):
    """One place a value could come from."""

    name: str
    value: str | None
    source: ConfigSource


class Row(NamedTuple):
    """One setting as it is now; `origins` has all that were set, the one that holds first."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    kind: Kind
    doc: str
    origins: Sequence[Origin]


class Alteration(NamedTuple):
    """One wish of IncrementalAlterConfigs."""

    name: str
    operation: int
    value: str | None


class Levels:
    """The layers of settings a broker has under its topics' own."""

    def __init__(self, image: ClusterImage, broker_id: BrokerId, given: Mapping[str, str]) -> None:
        self._layers = (
            (ConfigSource.DYNAMIC_BROKER, image.broker_configs.get(str(broker_id), {})),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, image.broker_configs.get(ALL_BROKERS, {})),
            (ConfigSource.STATIC_BROKER, given),
        )

    def effective(self) -> BrokerConfig:
        """What the broker's settings come to."""
        merged: dict[str, str] = {}
        for _, layer in reversed(self._layers):
            merged |= layer
        return broker_config(merged)[0]

    def topic(self, topic: TopicImage) -> Iterator[Row]:
        """A topic's settings."""
        for setting in topic_settings().values():
            origins = []
            if setting.name in topic.configs:
                origins.append(Origin(setting.name, topic.configs[setting.name], ConfigSource.TOPIC))
            origins += self._inherited(setting)
            yield _row(setting, origins, read_only=False)

    def broker(self) -> Iterator[Row]:
        """A broker's settings."""
        for setting in broker_settings().values():
            default = None if setting.default is None else render(setting.default)
            origins = [*self._set(setting.name), Origin(setting.name, default, ConfigSource.DEFAULT)]
            yield _row(setting, origins, read_only=not setting.dynamic)

    def all_brokers(self) -> Iterator[Row]:
        """What was changed for all brokers while they run: that and nothing else."""
        known = broker_settings()
        for source, layer in self._layers:
            if source is ConfigSource.DYNAMIC_DEFAULT_BROKER:
                for name, value in layer.items():
                    yield _row(known[name], [Origin(name, value, source)], read_only=False)

    def _set(self, name: str, scale: int = 1) -> Iterator[Origin]:
        for source, layer in self._layers:
            if name in layer:
                yield Origin(name, _scaled(layer[name], scale), source)

    def _inherited(self, setting: Setting) -> Iterator[Origin]:
        for name, scale in setting.synonyms:
            yield from self._set(name, scale)
        assert setting.default is not None
        name = setting.synonyms[0][0] if setting.synonyms else setting.name
        yield Origin(name, render(setting.default), ConfigSource.DEFAULT)


def altered(
    current: Mapping[str, str], wishes: Iterable[Alteration], known: Mapping[str, Setting]
) -> dict[str, str]:
    """What settings become by IncrementalAlterConfigs; values are checked where they are stored."""
    result = dict(current)
    for wish in wishes:
        setting = known.get(wish.name)
        if setting is None:
            raise Refused(Code.INVALID_CONFIG, f"The setting {wish.name!r} does not exist.")
        if wish.operation == Operation.DELETE:
            result.pop(wish.name, None)
        elif wish.value is None:
            raise Refused(Code.INVALID_CONFIG, f"{wish.name} has an invalid value: none.")
        elif wish.operation == Operation.SET:
            result[wish.name] = wish.value
        else:
            result[wish.name] = _list_changed(setting, result, wish.operation, wish.value)
    return result


def checked_broker_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """The same settings, or a refusal: they must exist, be dynamic, and have values that fit."""
    known = broker_settings()
    for name, text in configs.items():
        if name not in known:
            raise Refused(Code.INVALID_CONFIG, f"The broker setting {name!r} does not exist.")
        if not known[name].dynamic:
            raise Refused(
                Code.INVALID_REQUEST, f"{name} cannot be changed while the broker runs: restart it."
            )
        try:
            known[name].parse(text)
        except ConfigError as error:
            raise Refused(Code.INVALID_CONFIG, str(error)) from None
    return dict(configs)


def _row(setting: Setting, origins: Sequence[Origin], *, read_only: bool) -> Row:
    holds = origins[0]
    return Row(setting.name, holds.value, holds.source, read_only, setting.kind, setting.doc, origins)


def _scaled(text: str, scale: int) -> str:
    return text if scale == 1 or int(text) < 0 else str(int(text) * scale)


def _list_changed(setting: Setting, current: Mapping[str, str], operation: int, value: str) -> str:
    if setting.kind is not Kind.LIST:
        raise Refused(
            Code.INVALID_CONFIG,
            f"The operation is invalid: {setting.name} is not a list, and takes no more and no less.",
        )
    before = current.get(setting.name, render(setting.default or ()))
    items = [item for item in before.split(",") if item]
    named = [item.strip() for item in value.split(",") if item.strip()]
    if operation == Operation.APPEND:
        items += [item for item in named if item not in items]
    elif operation == Operation.SUBTRACT:
        items = [item for item in items if item not in named]
    else:
        raise Refused(Code.INVALID_REQUEST, f"The operation {operation} on a setting does not exist.")
    return ",".join(items)
