"""Reads records from partitions that were assigned by hand, or that its group gives it.

One network thread fetches ahead, sends heartbeats and commits; the user's thread decodes what it is given and, in poll,
hears of rebalances. Always holds: a partition's records come in order, each once, from the position on; the position is
the offset of the next record that `poll` will give. A group is told of a record as read only after the poll that
follows it, or by `commit` and `close`.

    with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        for record in consumer:
            print(record.topic, record.partition, record.offset, record.key, record.value)
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, Unpack
from uuid import uuid4

from barnabas.client.consumer.assignors import assignors_of
from barnabas.client.consumer.classic_member import GroupMember
from barnabas.client.consumer.consumer_lock import ConsumerLock
from barnabas.client.consumer.consumer_member import ConsumerGroupMember
from barnabas.client.consumer.consumer_record import ConsumerRecord, RecordDecoder, deserializer
from barnabas.client.consumer.delivery import Delivery
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.consumer.fetches import COMMITTED, Fetches
from barnabas.client.consumer.group_session import Committed, GroupSession
from barnabas.client.consumer.member import Member
from barnabas.client.consumer.offsets import EARLIEST, LATEST, OffsetAt
from barnabas.client.consumer.questions import Questions
from barnabas.client.consumer.subscription import RebalanceListener, Subscription
from barnabas.client.declared import ConsumerSettings
from barnabas.client.group_offsets import GroupMetadata, GroupOffsets
from barnabas.client.network.failures import TimedOut
from barnabas.client.network.network import Network
from barnabas.client.settings import Long, PositiveInt, SettingsSignature, Unique, checked, hot, sound
from barnabas.errors import BarnabasError
from barnabas.types import Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Consumer", "ConsumerRecord", "RebalanceListener", "Woken"]

T = TypeVar("T")

_logger = logging.getLogger("barnabas.client")

_RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}
_ISOLATION = {"read_uncommitted": False, "read_committed": True}
_LONGEST_WAIT_S = 3600.0


class Woken(BarnabasError):
    """Another thread has called `wakeup`."""


@checked
class Consumer(Unique):
    """Reads records. Not for several threads at once, but for `wakeup`."""

    __signature__ = SettingsSignature()

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        if settings["heartbeat_interval_ms"] >= settings["session_timeout_ms"]:
            raise BarnabasError(
                "heartbeat.interval.ms must be less than session.timeout.ms: a third is usual."
            )
        decoder = RecordDecoder(
            check_crcs=settings["check_crcs"],
            key_deserializer=deserializer(settings["key_deserializer"], "key_deserializer"),
            value_deserializer=deserializer(settings["value_deserializer"], "value_deserializer"),
        )
        new_member: Callable[..., Member]
        if settings["group_protocol"] == "classic":
            new_member = partial(
                GroupMember,
                assignors=assignors_of(settings["partition_assignment_strategy"]),
                session_timeout_ms=settings["session_timeout_ms"],
                heartbeat_interval_ms=settings["heartbeat_interval_ms"],
            )
        else:
            new_member = partial(
                ConsumerGroupMember, member_id=str(uuid4()), assignor=settings["group_remote_assignor"]
            )
        new_member = partial(
            new_member,
            instance_id=settings["group_instance_id"],
            max_poll_interval_ms=settings["max_poll_interval_ms"],
            retry_backoff_ms=settings["retry_backoff_ms"],
        )
        read_committed = _ISOLATION[settings["isolation_level"]]
        self._max_poll_records = settings["max_poll_records"]
        self._api_timeout = settings["default_api_timeout_ms"] / 1000
        self.idle_timeout = settings["consumer_timeout_ms"] / 1000
        self._check_crcs = settings["check_crcs"]
        self._lock = ConsumerLock()
        self._fetches = Fetches(
            reset=_RESETS[settings["auto_offset_reset"]],
            min_bytes=settings["fetch_min_bytes"],
            max_bytes=settings["fetch_max_bytes"],
            max_partition_bytes=settings["max_partition_fetch_bytes"],
            max_wait_ms=settings["fetch_max_wait_ms"],
            read_committed=read_committed,
            retry_backoff_ms=settings["retry_backoff_ms"],
        )
        self._network = Network(
            settings["bootstrap_servers"],
            client_id=settings["client_id"],
            request_timeout_ms=settings["request_timeout_ms"],
            retry_backoff_ms=settings["retry_backoff_ms"],
            metadata_max_age_ms=settings["metadata_max_age_ms"],
            connections_max_idle_ms=settings["connections_max_idle_ms"],
            name=settings["client_id"],
        )
        self._session = GroupSession(
            self._network,
            self._fetches,
            self._lock,
            group=settings["group_id"],
            new_member=new_member,
            new_subscription=partial(
                Subscription,
                max_age_s=settings["metadata_max_age_ms"] / 1000,
                create=settings["allow_auto_create_topics"],
                internal=not settings["exclude_internal_topics"],
            ),
            auto_commit_interval=settings["auto_commit_interval_ms"] / 1000
            if settings["enable_auto_commit"]
            else None,
            timeout=self._api_timeout,
            wake_fetcher=self._wake_fetcher,
        )
        self._fetcher = Fetcher(
            self._network,
            self._fetches,
            self._lock,
            self._session.ask_where_to_begin,
            read_committed=read_committed,
        )
        self._questions = Questions(self._network, read_committed=read_committed, timeout=self._api_timeout)
        self._delivery = Delivery(self._fetches, self._lock, decoder, self._wake_fetcher)
        self._using = threading.Lock()
        self._user: int | None = None
        self._who = threading.get_ident
        self._is_woken = False
        self._is_closed = False
        self._network.start()
        try:
            # An unreachable broker is told of here.
            self._network.wait_for(partial(self._network.refresh, ()), self._api_timeout)
            if topics:
                self.subscribe(topics)
        except BaseException:
            self._network.close()
            raise

    def _wake_fetcher(self) -> None:
        self._fetcher.wake()

    def close(self, timeout: float | None = None, *, commit: bool = True) -> None:
        """Commit what polls have given, if commits are automatic, and leave the group, within `timeout` seconds."""
        if self._is_closed:
            return
        with self._in_use():
            self._is_closed = True
            seconds = self._network.request_timeout if timeout is None else timeout
            deadline = time.monotonic() + seconds
            try:
                if commit:
                    self._session.commit_given(deadline)
                self._session.leave(deadline)
            finally:
                self._network.close(max(deadline - time.monotonic(), 1.0))

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After a failure the last records may not have been dealt with: they will come again.
        self.close(commit=error is None)

    # What is read

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: object | None = None,
    ) -> None:
        """Share these topics, or those whose whole name matches the pattern, with the other members of the group.

        The listener's on_partitions_revoked, on_partitions_assigned and on_partitions_lost are called in poll.
        """
        wanted = [topics] if isinstance(topics, str) else topics
        if bool(wanted) == (pattern is not None):
            raise BarnabasError("Subscribe to topics, or to a pattern, and not to both.")
        with self._in_use():
            self._session.subscribe(wanted, pattern, listener)

    def assign(self, partitions: Mapping[TopicPartition, Long] | Iterable[TopicPartition]) -> None:
        """Read these and no others, from the offsets given, else from what the group has committed, if there is one,
        else from where auto.offset.reset says."""
        wanted = [TopicPartition(*each) for each in partitions]
        with self._in_use():
            if self._session.subscription is not None:
                raise BarnabasError("This consumer has subscribed: unsubscribe before you assign.")
            self._session.commit_given(time.monotonic() + self._api_timeout)
            with self._lock:
                self._fetches.drop(self._fetches.partitions)
                # What a mapping says, the seek below does: nothing is to be looked for.
                self._fetches.add(wanted, LATEST if isinstance(partitions, Mapping) else self._session.start)
                if isinstance(partitions, Mapping):
                    for partition in wanted:
                        self._fetches.seek(partition, partitions[partition])
            self._fetcher.wake()

    def unsubscribe(self) -> None:
        """Commit, if commits are automatic, leave the group, and read nothing."""
        with self._in_use():
            deadline = time.monotonic() + self._api_timeout
            self._session.commit_given(deadline)
            self._session.leave(deadline)
            with self._lock:
                self._fetches.drop(self._fetches.partitions)

    def assignment(self) -> set[TopicPartition]:
        with self._lock:
            return set(self._fetches.partitions)

    def subscription(self) -> set[str]:
        """The topics that are shared with the group."""
        found = self._session.subscription
        return set() if found is None else set(found.topics)

    @property
    def has_joined(self) -> bool:
        """Whether the group has given this consumer its partitions; that may be none."""
        with self._lock:
            return self._session.member is not None and self._session.member.is_settled

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic."""
        return self._questions.partitions_of(topic)

    def pause(self, *partitions: TopicPartition) -> None:
        """Give nothing of these until they are resumed."""
        with self._in_use(), self._lock:
            self._fetches.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        with self._in_use():
            with self._lock:
                self._fetches.resume(partitions)
            self._fetcher.wake()

    def paused(self) -> set[TopicPartition]:
        with self._lock:
            return set(self._fetches.paused)

    # Where it is read from

    def seek(self, partition: TopicPartition, offset: Long) -> None:
        """Go on from this offset."""
        with self._in_use():
            with self._lock:
                self._fetches.seek(TopicPartition(*partition), offset)
            self._fetcher.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self.seek_to_time(EARLIEST, *partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self.seek_to_time(LATEST, *partitions)

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Go back to what the group has committed: after a transaction was aborted its records come again."""
        if self._session.group is None:
            raise BarnabasError("This consumer has no group.id.")
        self.seek_to_time(COMMITTED, *partitions)

    def seek_to_time(self, timestamp: int, *partitions: TopicPartition) -> None:
        """Go to the first record at or after a time in milliseconds; to the end where there is none."""
        with self._in_use():
            with self._lock:
                for partition in partitions or self._fetches.partitions:
                    self._fetches.seek_to(TopicPartition(*partition), timestamp)
            self._fetcher.wake()

    def position(self, partition: TopicPartition, timeout: float | None = None) -> Offset:
        """The offset of the next record `poll` will give, once that is known."""
        deadline = time.monotonic() + (self._api_timeout if timeout is None else timeout)
        with self._in_use():
            while True:
                with self._lock:
                    found = self._fetches.reading(TopicPartition(*partition)).position
                    if found is not None:
                        return Offset(found)
                    if self._fetches.failures:
                        raise self._fetches.failures.popleft()
                    self._raise_what_stands()
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise TimedOut(f"The position in {TopicPartition(*partition)} is not known in time.")
                    self._lock.wait(left)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt | None]:
        """The first record at or after each time; None where there is none."""
        found = self._questions.offsets(times)
        return {partition: at if at.offset >= 0 else None for partition, at in found.items()}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        found = self._questions.offsets(dict.fromkeys(partitions, EARLIEST))
        return {partition: at.offset for partition, at in found.items()}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The offsets that the next records will get; with read_committed, of the first that is not decided."""
        found = self._questions.offsets(dict.fromkeys(partitions, LATEST))
        return {partition: at.offset for partition, at in found.items()}

    # Reading

    @hot
    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, waiting up to `timeout` seconds for the first; an empty list when none came."""
        if not (type(timeout) is float and timeout >= 0.0):
            sound("poll: timeout", float, timeout)
        limit = self._max_poll_records if max_records is None else max_records
        if not (type(limit) is int and limit > 0):
            sound("poll: max_records", PositiveInt, max_records)
        return self._wait_and_take(timeout, lambda: self._delivery.take(limit)) or []

    def poll_arrow(
        self,
        timeout: float = 0.0,
        *,
        columns: Collection[str] | None = None,
        max_bytes: PositiveInt = 1 << 20,
    ) -> "pa.RecordBatch | None":
        """The next records as an Arrow batch, about `max_bytes` of them; None when none came.

        The columns are key, value, topic, partition, offset, timestamp, timestampType and headers.
        """

        def take() -> "pa.RecordBatch | None":
            return self._delivery.columns(columns, max_bytes, check_crcs=self._check_crcs)

        return self._wait_and_take(timeout, take)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record by record, for ever, or until none came for consumer.timeout.ms."""
        while self._wait(self.idle_timeout):
            yield from self._delivery.records(self._max_poll_records)

    def wakeup(self) -> None:
        """From any thread: the poll under way, or else the next one, raises Woken."""
        with self._lock:
            self._is_woken = True
            self._lock.tell()

    # The group

    def commit(
        self, offsets: Mapping[TopicPartition, Long] | None = None, *, timeout: float | None = None
    ) -> None:
        """Tell the group what has been read: all that polls have given, or these offsets of next records."""
        with self._in_use():
            self._session.commit(offsets, timeout)

    def commit_async(
        self, offsets: Mapping[TopicPartition, Long] | None = None, callback: Committed | None = None
    ) -> None:
        """The same without waiting; a later poll calls `callback(offsets, error)`, where no error is None."""
        with self._in_use():
            self._session.commit_async(offsets, callback)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What the group has committed of these; where that is nothing, nothing is said."""
        wanted = [TopicPartition(*each) for each in partitions]
        if self._session.group is None:
            raise BarnabasError("This consumer has no group.id.")
        ask = partial(self._session.committed, wanted)
        found = self._questions.retry(
            lambda: self._network.wait_for(ask, self._api_timeout, "Asking the group")
        )
        return {partition: Offset(at.offset) for partition, at in found.items()}

    def group_metadata(self) -> GroupMetadata:
        """What the group knows this consumer by: a producer sends it along with offsets of its own choice."""
        return self._session.metadata

    def offsets_to_send(self) -> GroupOffsets:
        """All that polls have given, for `Producer.send_offsets`, which commits it with a transaction."""
        with self._in_use():
            return self._session.offsets_to_send()

    # For `async_consumer`, which waits in its own way

    def listen(self, on_news: Callable[[], None]) -> None:
        """Call this, in the network's thread, when there may be something to poll; one task counts as one thread."""
        self._who = lambda: 0
        self._lock.on_news = on_news

    @property
    def has_work(self) -> bool:
        """Whether poll has something to do that may take time: a rebalance, or a commit's callback."""
        with self._lock:
            return self._session.has_news

    def is_ready(self) -> bool:
        """Whether records are here, after all that poll does."""
        return self._wait(0.0)

    def ready(self) -> Iterator[ConsumerRecord]:
        """Those that are here, up to max.poll.records."""
        return self._delivery.records(self._max_poll_records)

    # How it waits

    def _wait_and_take(self, timeout: float, take: Callable[[], T | None]) -> T | None:
        """What `take` finds, as soon as it finds something; None when the time is over."""
        deadline = time.monotonic() + timeout
        while self._wait(max(deadline - time.monotonic(), 0.0)):
            with self._in_use():
                found = take()
            if found:
                return found
        return None

    def _wait(self, timeout: float) -> bool:
        """Whether there are records to give, after `timeout` seconds at most. Does what the group wants meanwhile."""
        deadline = time.monotonic() + timeout
        with self._in_use():
            self._session.polls()
            try:
                while True:
                    self._session.tend()
                    with self._lock:
                        if self._is_woken:
                            self._is_woken = False
                            raise Woken("Another thread has woken this consumer.")
                        if self._fetches.truncations:
                            self._settle_truncations()
                        if self._delivery.is_ready:
                            return True
                        self._raise_what_came()
                        if self._session.has_news:
                            continue
                        left = deadline - time.monotonic()
                        if left <= 0:
                            self._raise_what_stands()
                            return False
                        self._lock.wait(min(left, _LONGEST_WAIT_S))
            finally:
                self._session.works()

    def _settle_truncations(self) -> None:
        for warning in self._fetches.settle():
            _logger.warning("%s", warning)
        self._fetcher.wake()

    def _raise_what_came(self) -> None:
        if self._fetches.failures:
            raise self._fetches.failures.popleft()
        if not self._fetches.partitions and self._session.subscription is None:
            raise BarnabasError("Nothing is assigned to this consumer: call assign first, or subscribe.")

    def _raise_what_stands(self) -> None:
        """A poll that would give nothing tells why, each time: a loop that only logs errors hears of it again."""
        failure = self._fetches.standing_failure
        if failure is not None:
            raise failure

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """One thread at a time; a listener may call what it likes."""
        me = self._who()
        if self._user == me:
            yield
            return
        if not self._using.acquire(blocking=False):
            raise BarnabasError("A consumer cannot be used from two threads at once: give each its own.")
        try:
            if self._is_closed:
                raise BarnabasError("This consumer is closed.")
            self._user = me
            yield
        finally:
            self._user = None
            self._using.release()
