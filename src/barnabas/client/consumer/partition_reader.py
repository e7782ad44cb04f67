"""Reads a stretch of one partition as Arrow batches, straight from its leader. What a Spark executor runs.

Always holds: exactly the records from `start` to before `end` come, each once and in order, whatever becomes of
leaders and connections on the way; offsets that compaction has emptied are passed over, records that retention has
deleted are told of, and so are records that a new leader's log does not have as they were read. The next fetch is under
way while this one is decoded, and two are the most there is in memory.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from barnabas.client.columns.columns import Fetched, decode, schema_of
from barnabas.client.consumer.offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.consumer.reading import NO_EPOCH, EpochEnd, Position, Reading
from barnabas.client.declared import ClientSettings, default_of
from barnabas.client.network.failures import RETRIABLE, check, rewritten, truncated
from barnabas.client.network.network import Outcome
from barnabas.client.network.routing import Cluster
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import TopicPartition
from barnabas.wire.batch import CODEC_MASK, headers
from barnabas.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger("barnabas.client")

_CHUNK = 4 * 1024 * 1024
"""Bytes of batches decoded at once. Smaller chunks pay more for each step: with 1 MiB a row of 1 KiB takes 735 ns of
CPU instead of 630, and a read of 100 B rows by Spark 12 % more."""

_EXPANSION = 4
"""What a compressed byte counts as, so that chunks come out at about the same size."""

_LONG_POLL_MS = 500

_ISOLATION = {"read_uncommitted": 0, "read_committed": 1}


def read_partition(
    bootstrap_servers: str | Iterable[str],
    partition: TopicPartition,
    start: int,
    end: int,
    columns: Collection[str] | None = None,
    *,
    fail_on_data_loss: bool = True,
    isolation_level: str = "read_uncommitted",
    fetch_max_bytes: int = _CHUNK,
    check_crcs: bool = True,
    client_id: str = "barnabas-reader",
    request_timeout_ms: int = default_of(ClientSettings, "request_timeout_ms"),
    retry_backoff_ms: int = default_of(ClientSettings, "retry_backoff_ms"),
    timeout_ms: int = 60_000,
) -> "Iterator[pa.RecordBatch]":
    """The records from offset `start` to before `end`, in Arrow batches of about 4 MiB.

    Failures that may pass are borne until nothing has come for `timeout_ms`. Where records are gone, that is an
    error, or a warning in the log when `fail_on_data_loss` is False.
    """
    schema_of(columns)  # an unknown column is refused before the first request
    if isolation_level not in _ISOLATION:
        raise BarnabasError(f"isolation_level is one of {', '.join(_ISOLATION)}, not {isolation_level!r}.")
    cluster = Cluster(
        bootstrap_servers,
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        retry_backoff_ms=retry_backoff_ms,
    )
    reader = _Reader(
        cluster,
        partition,
        start,
        end,
        fail_on_data_loss=fail_on_data_loss,
        isolation=_ISOLATION[isolation_level],
        max_bytes=fetch_max_bytes,
        timeout=timeout_ms / 1000,
    )
    return _batches(reader, columns, check_crcs)


def _batches(
    reader: "_Reader", columns: Collection[str] | None, check_crcs: bool
) -> "Iterator[pa.RecordBatch]":
    try:
        while (chunks := reader.next_chunks()) is not None:
            for chunk in chunks:
                batch = decode([chunk], columns, check_crcs=check_crcs)
                if batch.num_rows:
                    yield batch
    finally:
        reader.close()


class _Reader:
    """Where the reading of one partition stands."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        fail_on_data_loss: bool,
        isolation: int,
        max_bytes: int,
        timeout: float,
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._position = start
        self._end = end
        self._fail_on_data_loss = fail_on_data_loss
        self._isolation = isolation
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._asked: Outcome[FetchResponse] | None = None
        self._wait_ms = 0
        self._read_epoch = NO_EPOCH
        """The leader epoch of the last batch that was read."""
        self._history = Reading(partition)
        """Where epochs begin in what was read."""
        self._history.begin(Position(start))
        self._asked_epoch = self._leader_epoch = NO_EPOCH
        """The epoch of the leader whose log is known to have all that was read."""
        self._is_doubted = False

    def close(self) -> None:
        self._cluster.close()

    def next_chunks(self) -> list[Fetched] | None:
        """What came next, in pieces to decode, with the fetch behind it already asked for; None at the end."""
        patience = self._cluster.patience(self._timeout, self._may_pass)
        while self._position < self._end:
            try:
                answer = self._receive()
                chunks = self._take(answer)
            except Refused as problem:
                patience.bear(problem)
                continue
            if chunks:
                self._ask_ahead()
                return chunks
            if not patience.left:
                self._lose(self._end)
        return None

    def _may_pass(self, problem: Refused) -> bool:
        # What the metadata does not have is gone; a broker may say so too early, while the metadata has it.
        is_unknown = problem.code is Code.UNKNOWN_TOPIC_OR_PARTITION
        is_gone = is_unknown and not self._cluster.knows_leader_of(self._partition)
        return problem.code in RETRIABLE and problem.code is not Code.CORRUPT_MESSAGE and not is_gone

    def _receive(self) -> FetchPartitionResponse:
        if self._asked is None:
            self._ask()
        coming, self._asked = self._asked, None
        assert coming is not None
        answer = coming.get()
        check(answer.error_code, f"A fetch of {self._partition}")
        return answer.responses[0].partitions[0]

    def _ask(self) -> None:
        self._cluster.allow(self._timeout)
        leader = self._cluster.leader_of(self._partition)
        epoch = self._asked_epoch = self._cluster.leader_epoch_of(self._partition)
        # A leader that is new here says whether its log has what was read: it may have lost a tail.
        self._is_doubted = self._read_epoch not in (NO_EPOCH, epoch) and epoch != self._leader_epoch
        wanted = FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=epoch,
            fetch_offset=self._position,
            last_fetched_epoch=self._read_epoch if self._is_doubted else NO_EPOCH,
            partition_max_bytes=self._max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation,
            topics=[FetchTopic(topic=self._partition.topic, partitions=[wanted])],
        )
        self._asked = leader.ask(request, FetchResponse, wait=self._wait_ms / 1000)

    def _ask_ahead(self) -> None:
        if self._position < self._end:
            try:
                self._ask()
            except Refused:
                # What has come is to be read first; then this is asked, and heard of, again.
                self._asked = None

    def _take(self, answer: FetchPartitionResponse) -> list[Fetched]:
        """What an answer brought, with the position moved behind it; nothing when there was nothing (yet)."""
        if answer.error_code == Code.OFFSET_OUT_OF_RANGE:
            self._look_for_the_log()
            return []
        check(answer.error_code, f"Partition {self._partition}")
        self._leader_epoch = self._asked_epoch
        if answer.diverging_epoch is not None:
            self._find_rewritten(EpochEnd(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset))
            return []
        data = answer.records
        if not data:
            if answer.high_watermark >= self._end:
                # Compaction left nothing between here and the end.
                self._position = self._end
            # There should be more, but a new leader may yet have to learn how far its log is good.
            self._wait_ms = _LONG_POLL_MS
            return []
        assert isinstance(data, memoryview)
        chunks = self._split(data, answer.aborted_transactions or [])
        if not chunks:
            self._max_bytes *= 2  # an old broker cuts even the first batch off
        self._wait_ms = 0
        return chunks

    def _split(self, data: memoryview, aborted: list[AbortedTransaction]) -> list[Fetched]:
        """Batches in chunks of about 4 MiB; where transactions were aborted, in one that follows them all."""
        topic, partition = self._partition
        chunks: list[Fetched] = []
        start = self._position
        first = size = last = 0
        for at, header in headers(data):
            if at > first and size > _CHUNK and not aborted:
                chunks.append(Fetched(topic, partition, data[first:at], start, self._end))
                first, size = at, 0
            size += header.size * (_EXPANSION if header.attributes & CODEC_MASK else 1)
            last = at + header.size
            if header.leader_epoch > self._read_epoch:
                self._history.fetch_offset = self._position
                self._history.note([(header.base_offset, header.leader_epoch)])
                self._read_epoch = header.leader_epoch
            self._position = max(self._position, header.next_offset)
            if self._position >= self._end:
                break
        if last > first:
            chunks.append(Fetched(topic, partition, data[first:last], start, self._end, aborted))
        return chunks

    def _look_for_the_log(self) -> None:
        """The log is not where it was: retention or DeleteRecords has cut it, or the topic has been made anew."""
        first, last = (
            list_offsets(self._cluster, {self._partition: which}, timeout=self._timeout)[
                self._partition
            ].offset
            for which in (EARLIEST, LATEST)
        )
        if self._position < first:
            self._lose(min(first, self._end))
        elif self._position > last:
            self._lose(self._end)
        elif self._is_doubted:
            self._leader_epoch = self._asked_epoch
            self._find_rewritten(None)

    def _find_rewritten(self, found: EpochEnd | None) -> None:
        """A new leader's log has only this much of what was read, or none; what was given cannot be taken back."""
        self._history.fetch_offset = self._position
        divergent = None if found is None else self._history.divergence(found)
        if found is not None and divergent is None:
            return
        if divergent is not None:
            divergent = max(divergent, self._history.began.offset)
        if self._fail_on_data_loss:
            raise truncated(
                self._partition,
                self._position,
                divergent,
                "read it again, or set fail_on_data_loss (Spark: failOnDataLoss) to false to go on.",
            )
        text = rewritten(self._position, divergent)
        _logger.warning("Partition %s: %s; going on with what is there now.", self._partition, text)

    def _lose(self, until: int) -> None:
        """Records from the position to before `until` are not to be had."""
        text = (
            f"Partition {self._partition}: the records from offset {self._position} to {until - 1} are gone"
        )
        if self._fail_on_data_loss:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"{text}, deleted by retention or with their topic: "
                "set fail_on_data_loss (Spark: failOnDataLoss) to false to go on without them.",
            )
        _logger.warning("%s; going on without them.", text)
        self._position = until
