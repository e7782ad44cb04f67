"""What was asked for with `.option(...)`, as values. What there is to ask for is in `declared`.

Used by the readers and writers of this package. PURE: text in, values out.
Always holds: what is not declared is refused with the name that comes nearest; what is parsed needs no second look.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias

from barnabas.client.declared import boolean
from barnabas.errors import BarnabasError
from barnabas.spark.declared import (
    CLIENT_SETTINGS,
    OPTIONS,
    OURS_TO_DECIDE,
    WITHOUT_EFFECT,
    Use,
    reader_of_setting,
)
from barnabas.types import TopicPartition

LATEST = -1
EARLIEST = -2

ClientSettings: TypeAlias = Mapping[str, Any]
"""Settings of Barnabas' own client: Kafka's names with underscores."""


class OptionError(BarnabasError):
    """An option that there is not, or a value it cannot take."""


_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_DURATION = re.compile(r"(\d+)\s*(ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?|d|days?)")
_UNITS = {"ms": 1, "mi": 60_000, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is read: one of the three."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        return self.pattern or ", ".join(map(str, self.topics or self.partitions))


@dataclass(frozen=True, slots=True)
class Place:
    """Where to begin or end: one number for every partition, or one for each. Offsets (LATEST, EARLIEST), or times."""

    everywhere: int | None = None
    each: tuple[tuple[TopicPartition, int], ...] = ()
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All that a reader needs to know."""

    bootstrap: str
    subscription: Subscription
    start: Place
    end: Place
    late_start_is_latest: bool
    fail_on_data_loss: bool
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    min_partitions: int | None
    max_records: int | None
    client: ClientSettings


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """All that a writer needs to know."""

    bootstrap: str
    topic: str | None
    client: ClientSettings


def includes_headers(given: Mapping[str, str]) -> bool:
    """Whether the schema has headers; for a caller that needs the schema before its use is known."""
    return _Given(given, Use.ALL).boolean("includeHeaders", default=False)


def read_options(given: Mapping[str, str], use: Use) -> ReadOptions:
    """What a batch or streaming read was asked for."""
    options = _Given(given, use)
    streaming = use is Use.STREAM
    start = options.place("starting", EARLIEST if not streaming else LATEST)
    end = options.place("ending", LATEST)
    if not streaming and LATEST in _numbers(start):
        raise OptionError("startingOffsets cannot be latest in a batch: nothing would be read.")
    if EARLIEST in _numbers(end):
        raise OptionError("endingOffsets cannot be earliest: nothing would be read.")
    strategy = options.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy not in ("error", "latest"):
        raise OptionError(f"startingOffsetsByTimestampStrategy is error or latest, not {strategy!r}.")
    return ReadOptions(
        bootstrap=options.bootstrap(),
        subscription=options.subscription(),
        start=start,
        end=end,
        late_start_is_latest=strategy == "latest",
        fail_on_data_loss=options.boolean("failOnDataLoss", default=True),
        max_offsets=options.count("maxOffsetsPerTrigger"),
        min_offsets=options.count("minOffsetsPerTrigger"),
        max_delay_ms=options.duration("maxTriggerDelay") or _UNITS["m"] * 15,
        min_partitions=options.count("minPartitions"),
        max_records=options.count("maxRecordsPerPartition"),
        client=options.client,
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """What a batch or streaming write was asked for."""
    options = _Given(given, Use.WRITE)
    return WriteOptions(options.bootstrap(), options.text("topic"), options.client)


class _Given:
    """The options of one query, all of them known to be declared for this use."""

    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self.client: dict[str, Any] = {}
        for name, value in self._given.items():
            option = _BY_NAME.get(name)
            if option is None:
                self._take_setting(name, value, use)
            elif not option.use & use:
                raise OptionError(f"The option {option.name} is not for {_purpose(use)}: leave it out.")

    def text(self, name: str) -> str | None:
        return (self._given.get(name.lower()) or "").strip() or None

    def boolean(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        try:
            return default if text is None else boolean(text)
        except ValueError:
            raise OptionError(f"{name} is true or false, not {text!r}.") from None

    def count(self, name: str) -> int | None:
        text = self.text(name)
        if text is not None and not (text.isdigit() and int(text)):
            raise OptionError(f"{name} is a whole number above 0, not {text!r}.")
        return None if text is None else int(text)

    def duration(self, name: str) -> int | None:
        """Milliseconds."""
        text = self.text(name)
        if text is None:
            return None
        found = _DURATION.fullmatch(text.lower())
        if found is None:
            raise OptionError(f"{name} is a duration such as 30s, 15m or 2h, not {text!r}.")
        number, unit = found.groups()
        return int(number) * (_UNITS.get(unit[:2]) or _UNITS[unit[0]])

    def bootstrap(self) -> str:
        servers = self.text("kafka.bootstrap.servers")
        if servers is None:
            raise OptionError(
                "The option kafka.bootstrap.servers is missing: say where the brokers are, host:port."
            )
        return servers

    def subscription(self) -> Subscription:
        ways = [name for name in ("assign", "subscribe", "subscribePattern") if self.text(name)]
        if len(ways) != 1:
            said = "none is given" if not ways else f"{' and '.join(ways)} are given"
            raise OptionError(
                f"Exactly one of subscribe, subscribePattern and assign says what is read; {said}."
            )
        text = self.text(ways[0]) or ""
        if ways[0] == "subscribe":
            names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
            if not names:
                raise OptionError(f"subscribe names no topic: {text!r}.")
            return Subscription(topics=tuple(names))
        if ways[0] == "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise OptionError(f"subscribePattern {text!r} is no regular expression: {error}.") from None
            return Subscription(pattern=text)
        return Subscription(partitions=_assigned(text))

    def place(self, which: str, default: int) -> Place:
        """Spark's order: one time for all, then times by partition, then offsets."""
        timestamp = self.text(f"{which}Timestamp")
        if timestamp is not None:
            if not timestamp.isdigit():
                raise OptionError(f"{which}Timestamp is milliseconds since 1970, not {timestamp!r}.")
            return Place(int(timestamp), is_time=True)
        times = self.text(f"{which}OffsetsByTimestamp")
        if times is not None:
            return Place(each=_by_partition(f"{which}OffsetsByTimestamp", times, least=0), is_time=True)
        offsets = self.text(f"{which}Offsets")
        if offsets is None:
            return Place(default)
        if offsets.lower() in ("earliest", "latest"):
            return Place(EARLIEST if offsets.lower() == "earliest" else LATEST)
        return Place(each=_by_partition(f"{which}Offsets", offsets, least=EARLIEST))

    def _take_setting(self, name: str, value: str, use: Use) -> None:
        if not name.startswith("kafka."):
            raise OptionError(f"There is no option {name!r}{_nearest(name, use)}")
        setting = name.removeprefix("kafka.")
        if setting in OURS_TO_DECIDE:
            raise OptionError(f"{name} cannot be set: {OURS_TO_DECIDE[setting]}.")
        if setting in WITHOUT_EFFECT:
            return
        wanted = CLIENT_SETTINGS.get(setting)
        if wanted is None:
            raise OptionError(f"There is no client setting {name!r}{_nearest(name, use)}")
        if wanted & use:
            # A setting of the other direction changes nothing here: one set of options may serve both.
            parse = reader_of_setting(setting)
            try:
                self.client[setting.replace(".", "_")] = parse(value)
            except ValueError:
                kind = {boolean: "true or false", int: "a whole number"}.get(parse, "a number")
                raise OptionError(f"{name} is {kind}, not {value!r}.") from None


def _numbers(place: Place) -> set[int | None]:
    return set() if place.is_time else {place.everywhere, *(number for _, number in place.each)}


def _purpose(use: Use) -> str:
    return {Use.BATCH: "batch reads", Use.STREAM: "streaming reads", Use.WRITE: "writes"}.get(use, "this")


def _nearest(name: str, use: Use) -> str:
    known = {option.name.lower(): option.name for option in OPTIONS if option.use & use}
    known |= {f"kafka.{setting}": f"kafka.{setting}" for setting in CLIENT_SETTINGS}
    found = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {known[found[0]]}?" if found else "."


def _json(name: str, text: str, wanted: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(f"{name} is JSON such as {wanted}, not {text!r}.")
    return found


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    wanted = '{"orders":[0,1]}'
    found: list[TopicPartition] = []
    for topic, indexes in _json("assign", text, wanted).items():
        if not isinstance(indexes, list) or not all(type(index) is int and index >= 0 for index in indexes):
            raise OptionError(f"assign is JSON such as {wanted}, not {text!r}.")
        found += (TopicPartition(topic, index) for index in indexes)
    if not found:
        raise OptionError(f"assign names no partition: {text!r}.")
    return tuple(dict.fromkeys(found))


def _by_partition(name: str, text: str, least: int) -> tuple[tuple[TopicPartition, int], ...]:
    wanted = '{"orders":{"0":23,"1":42}}'
    found: list[tuple[TopicPartition, int]] = []
    for topic, numbers in _json(name, text, f"{wanted} or one word" if least < 0 else wanted).items():
        if not isinstance(numbers, dict):
            raise OptionError(f"{name} is JSON such as {wanted}, not {text!r}.")
        for index, number in numbers.items():
            if not index.isdigit() or type(number) is not int or number < least:
                raise OptionError(f"{name} has {index!r}: {number!r} for topic {topic!r}, which cannot be.")
            found.append((TopicPartition(topic, int(index)), number))
    return tuple(found)
