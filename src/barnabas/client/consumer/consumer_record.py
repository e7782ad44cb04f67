"""What a consumer gives: a record and where it was; and how fetched batches become such records.

PURE. Called by `delivery`. Batches are decoded a stretch at a time, when the first of its records is asked for, and
records are made when they are given.
"""

import gc
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from json import loads
from typing import Any, NamedTuple

from barnabas.client.columns.aborted import AbortedTransactions
from barnabas.client.consumer.reading import Chunk
from barnabas.client.serializers import Deserializer
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import Buffer, TopicPartition
from barnabas.wire.batch import DECODED_LIMIT, MAGIC, RECORDS_AT, BatchHeader, crc_of, headers
from barnabas.wire.compression import decompress
from barnabas.wire.records import FlatRecords, decode_records

CREATE_TIME = 0
LOG_APPEND_TIME = 1

"""Makes something of a key's or a value's bytes; a null one stays None."""


DecodeTogether = Callable[[Sequence[BatchHeader], Sequence[Buffer]], FlatRecords | None]

_TOGETHER_BYTES = 256 * 1024
"""Batches are decoded in stretches of about this size: numpy takes 80 us to begin with, whatever it finds."""

_MANY = 200
"""Records from which numpy finds them faster than a loop."""

_WORTH_LOADING = 50_000
"""Records after which the time to load numpy comes back."""


class ConsumerRecord(NamedTuple):
    """A record and where it was. Key and value are bytes, or what the deserializers made of them."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    timestamp_type: int
    """0 where the producer said when (CreateTime), 1 where the broker did (LogAppendTime)."""
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()


DESERIALIZERS: dict[str, Deserializer | None] = {"bytes": None, "str": bytes.decode, "json": loads}


def deserializer(given: str | Deserializer | None, setting: str) -> Deserializer | None:
    """The deserializer a setting names; None where bytes are given as they are."""
    if given is None or callable(given):
        return given
    if given not in DESERIALIZERS:
        raise BarnabasError(f"{setting} cannot be {given!r}: say bytes, str, json, or give a callable.")
    return DESERIALIZERS[given]


class Run(NamedTuple):
    """Decoded records in a row, as columns; they become objects when they are given."""

    columns: FlatRecords
    append_times: frozenset[int] | None
    """Offsets whose timestamps the broker gave; None where all timestamps were."""
    first: int
    """Where the first record is that was asked for."""
    after: int
    """The offset behind the last batch."""


class RecordDecoder:
    """How batches are read: with which checks, and what becomes of keys and values."""

    def __init__(
        self,
        *,
        check_crcs: bool = True,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        self._check_crcs = check_crcs
        self._key = key_deserializer
        self._value = value_deserializer
        self._seen = 0
        self._decode_together: DecodeTogether | None = None

    def runs(self, chunk: Chunk) -> Iterator[Run]:
        """The records of a chunk from its start on, in stretches; some may have none at all."""
        data, start = chunk.data, chunk.start
        hidden = AbortedTransactions(chunk.aborted)
        found: list[BatchHeader] = []
        bodies: list[Buffer] = []
        size, after = 0, start
        for at, header in headers(data):
            is_hidden = hidden.hides(data, at, header)
            if header.next_offset <= start:
                continue
            if not is_hidden:
                try:
                    bodies.append(self._body(chunk, at, header))
                except Refused:
                    # What comes before it is given first.
                    if found:
                        yield self._run(found, bodies, start, after)
                    raise
                found.append(header)
                size += len(bodies[-1])
            after = header.next_offset
            if size >= _TOGETHER_BYTES:
                yield self._run(found, bodies, start, after)
                found, bodies, size = [], [], 0
        yield self._run(found, bodies, start, after)

    def _body(self, chunk: Chunk, at: int, header: BatchHeader) -> Buffer:
        if self._check_crcs and crc_of(chunk.data, at, header.size) != header.crc:
            raise Refused(
                Code.CORRUPT_MESSAGE,
                f"Partition {chunk.reading.partition}: the batch at offset {header.base_offset} is corrupt.",
            )
        if header.magic != MAGIC:
            raise Refused(Code.UNSUPPORTED_FOR_MESSAGE_FORMAT)
        return decompress(
            header.codec, chunk.data[at + RECORDS_AT : at + header.size], max_bytes=DECODED_LIMIT
        )

    def _run(self, found: list[BatchHeader], bodies: list[Buffer], start: int, after: int) -> Run:
        columns = self._decode(found, bodies)
        kinds = {header.is_log_append_time for header in found}
        appended: frozenset[int] | None = frozenset()
        if kinds == {True}:
            appended = None
        elif len(kinds) == 2:
            ranges = [range(each.base_offset, each.next_offset) for each in found if each.is_log_append_time]
            appended = frozenset(offset for each in ranges for offset in each)
        first = bisect_left(columns.offsets, start) if found and found[0].base_offset < start else 0
        return Run(columns, appended, first, after)

    def _decode(self, found: list[BatchHeader], bodies: list[Buffer]) -> FlatRecords:
        count = sum(header.count for header in found)
        self._seen += count
        if count >= _MANY:
            if self._decode_together is None and (self._seen >= _WORTH_LOADING or "numpy" in sys.modules):
                self._decode_together = _large_decoder()
            together = self._decode_together and self._decode_together(found, bodies)
            if together:
                return together
        columns = FlatRecords([], [], [], [], [])
        for header, body in zip(found, bodies, strict=True):
            append_time = header.max_timestamp if header.is_log_append_time else None
            rows = decode_records(
                bytes(body), header.count, header.base_offset, header.base_timestamp, append_time
            )
            if len(found) == 1:
                return rows
            for column, more in zip(columns, rows, strict=True):
                column += more  # type: ignore[operator]
        return columns

    def records(self, partition: TopicPartition, run: Run, at: int, end: int) -> list[ConsumerRecord]:
        """The records at these places, up to one that cannot be deserialized; that is told when it is the first."""
        offsets, timestamps, keys, values, its_headers = run.columns
        if at or end < len(offsets):
            offsets, timestamps, its_headers = offsets[at:end], timestamps[at:end], its_headers[at:end]
            keys, values = keys[at:end], values[at:end]
        made_keys: Sequence[Any] = keys if self._key is None else _read(self._key, keys)
        made_values: Sequence[Any] = values if self._value is None else _read(self._value, values)
        if not (made_keys and made_values):
            raise self._complaint(f"offset {offsets[0]} of {partition}", keys[0], values[0])
        kinds: Iterable[int] = repeat(int(run.append_times is None))
        if run.append_times:
            kinds = [int(offset in run.append_times) for offset in offsets]
        topic, number = partition
        place = repeat(topic), repeat(number)
        found = zip(*place, offsets, timestamps, kinds, made_keys, made_values, its_headers, strict=False)
        # tuple.__new__ takes the tuple that zip has made: a third of the time of calling the class.
        with _collector_at_rest():
            return list(map(tuple.__new__, repeat(ConsumerRecord), found))

    def _complaint(self, where: str, key: bytes | None, value: bytes | None) -> BarnabasError:
        why: Exception | None = None
        what = "key"
        try:
            _read_one(self._key, key)
            what = "value"
            _read_one(self._value, value)
        except Exception as error:
            why = error
        return BarnabasError(
            f"The {what} of the record at {where} cannot be read: {why!r}. Seek behind it to go on."
        )


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """While many records are made, of which none is garbage: to look through them again and again took 160 ns each."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


def _large_decoder() -> DecodeTogether:
    """What finds many records at once with numpy, where that is installed."""
    try:
        from barnabas.client.columns.large_batches import decode_together
    except (ImportError, BarnabasError):
        return lambda found, bodies: None
    return decode_together


def _read(deserializer: Deserializer, column: Sequence[bytes | None]) -> list[Any]:
    """What the deserializer makes of a column; it ends before what cannot be read."""
    try:
        return [None if data is None else deserializer(data) for data in column]
    except Exception:
        good = []
        for data in column:
            try:
                good.append(_read_one(deserializer, data))
            except Exception:
                break
        return good


def _read_one(deserializer: Deserializer | None, data: bytes | None) -> Any:
    return data if data is None or deserializer is None else deserializer(data)
