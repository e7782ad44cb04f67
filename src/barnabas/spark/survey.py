"""What the driver asks the cluster before anything is read: which partitions there are, and where they begin and end.

Used by both readers. Always holds: an answer covers all partitions that were asked for, or a sentence says why not.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from barnabas.client.consumer.offsets import list_offsets
from barnabas.client.declared import ClientSettings, default_of
from barnabas.client.network.failures import Unreachable
from barnabas.client.network.metadata import Topic
from barnabas.client.network.routing import Cluster
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.spark.options import EARLIEST, LATEST, OptionError, Place, ReadOptions
from barnabas.spark.ranges import Offsets, TopicIds
from barnabas.types import TopicPartition
from barnabas.wire.schema import NO_ID

_PARTITIONS_FOR_S = 1.0
_CLIENT = {
    "client_id": "barnabas-spark",
    **{name: default_of(ClientSettings, name) for name in ("request_timeout_ms", "retry_backoff_ms")},
}

T = TypeVar("T")


class Survey:
    """A connection to the cluster for planning reads."""

    def __init__(self, options: ReadOptions, *, patient: bool = False) -> None:
        self._wanted = options.subscription
        self._has_answered = False
        self._known: list[TopicPartition] = []
        self._known_at = 0.0
        self.ids: TopicIds = {}
        """Of the topics that were there when partitions were last asked for."""
        self._late_start_is_latest = options.late_start_is_latest
        # Not through Admin: a query waits for this process to import what it needs.
        settings = {name: options.client.get(name, default) for name, default in _CLIENT.items()}
        self._timeout_s = settings["request_timeout_ms"] / 1000
        self._patience_s = self._timeout_s if patient else 0.0
        self._cluster = Cluster(options.bootstrap, **settings)

    def close(self) -> None:
        self._cluster.close()

    def __enter__(self) -> "Survey":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def partitions(self, *, missing_is_error: bool = True) -> list[TopicPartition]:
        """The partitions that there are now of what is subscribed to."""
        self.ids = {}
        if self._wanted.pattern is not None:
            whole_name = re.compile(self._wanted.pattern)
            topics = self._ask(lambda: self._cluster.retry(self._cluster.topics, timeout=self._timeout_s))
            return self._noted(t for t in topics if whole_name.fullmatch(t.name) and not t.is_internal)
        names = self._wanted.topics or tuple({each.topic for each in self._wanted.partitions})
        there = self._partitions_of(names, missing_is_error=missing_is_error)
        if self._wanted.topics:
            return there
        absent = sorted(set(self._wanted.partitions) - set(there))
        if absent and missing_is_error:
            raise BarnabasError(f"There is no partition {absent[0]}, which the option assign names.")
        return sorted(set(self._wanted.partitions) & set(there))

    def latest_of_all(self) -> Offsets:
        """Where all partitions end that there are; which there are is asked once a second."""
        # Spark asks for this every 10 ms while nothing comes.
        if time.monotonic() - self._known_at > _PARTITIONS_FOR_S:
            self._look_again()
        try:
            return self.latest(self._known)
        except Refused as error:
            if error.code is not Code.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._look_again()
            return self.latest(self._known)

    def _look_again(self) -> None:
        self._known = self.partitions(missing_is_error=False)
        self._known_at = time.monotonic()

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def first_since(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """The first record at or after a time in each partition; what has none is left out."""
        return {each: offset for each, offset in self._offsets(times).items() if offset >= 0}

    def start_of(self, place: Place, partitions: Collection[TopicPartition]) -> Offsets:
        """Where startingOffsets and its kind say that reading begins."""
        return self._resolve("startingOffsets", place, partitions, late_is_latest=self._late_start_is_latest)

    def end_of(self, place: Place, partitions: Collection[TopicPartition]) -> Offsets:
        """Where endingOffsets and its kind say that reading ends."""
        return self._resolve("endingOffsets", place, partitions, late_is_latest=True)

    def _resolve(
        self, option: str, place: Place, partitions: Collection[TopicPartition], *, late_is_latest: bool
    ) -> Offsets:
        wanted = dict(place.each) if place.everywhere is None else dict.fromkeys(partitions, place.everywhere)
        different = sorted(set(wanted) ^ set(partitions))
        if different:
            says = "names" if different[0] in wanted else "does not name"
            which = f"{option}ByTimestamp" if place.is_time else option
            raise OptionError(
                f"{which} {says} {different[0]}: it must name all partitions that are read, and no other."
            )
        if not place.is_time:
            asked = {each: number for each, number in wanted.items() if number < 0}
            return {**wanted, **self._offsets(asked)}
        found = self.first_since(wanted)
        late = sorted(set(wanted) - set(found))
        if late and not late_is_latest:
            raise BarnabasError(
                f"No record of {late[0]} is as late as the starting time {wanted[late[0]]}: "
                "begin earlier, or say startingOffsetsByTimestampStrategy=latest."
            )
        return {**found, **self.latest(late)}

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        if not wanted:
            return {}
        found = self._ask(lambda: list_offsets(self._cluster, wanted, timeout=self._timeout_s))
        return {each: at.offset for each, at in found.items()}

    def _ask(self, question: Callable[[], T]) -> T:
        """The answer; a query that runs waits for a broker that comes back, a new one is told at once."""
        patience = self._cluster.patience(
            self._patience_s, lambda why: self._has_answered and isinstance(why, Unreachable)
        )
        found = patience.ask(question)
        self._has_answered = True
        return found

    def _partitions_of(self, names: Iterable[str], *, missing_is_error: bool) -> list[TopicPartition]:
        names = list(names)
        try:
            topics = self._ask(
                lambda: self._cluster.retry(lambda: self._cluster.refresh(names), timeout=self._timeout_s)
            )
        except Refused as error:
            if error.code is not Code.UNKNOWN_TOPIC_OR_PARTITION or missing_is_error:
                raise
            if len(names) == 1:
                return []
            return [each for name in names for each in self._partitions_of([name], missing_is_error=False)]
        return self._noted(topics)

    def _noted(self, topics: Iterable[Topic]) -> list[TopicPartition]:
        there = list(topics)
        self.ids |= {topic.name: str(topic.id) for topic in there if topic.id != NO_ID}
        return sorted(TopicPartition(topic.name, each.index) for topic in there for each in topic.partitions)
