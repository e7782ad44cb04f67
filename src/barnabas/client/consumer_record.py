"""What a consumer gives: a record and where it was; and how fetched batches become such records.

PURE. Called by `handout`, which decodes one batch at a time, when its records are asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from barnabas.client.aborted import AbortedTransactions
from barnabas.client.fetches import Chunk
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.wire.batch import Record, crc_of, decode_batch, headers

CREATE_TIME = 0
LOG_APPEND_TIME = 1

Deserializer = Callable[[bytes], Any]
"""Makes something of a key's or a value's bytes; a null one stays None."""


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

    def batches(self, chunk: Chunk) -> Iterator[tuple[list[ConsumerRecord], int]]:
        """The records of each batch from the chunk's start on, possibly none, and the offset behind it."""
        data, start = chunk.data, chunk.start
        topic, partition = chunk.reading.partition
        hidden = AbortedTransactions(chunk.aborted)
        for at, header in headers(data):
            is_hidden = hidden.hides(data, at, header)
            if header.next_offset <= start:
                continue
            if is_hidden:
                yield [], header.next_offset
                continue
            if self._check_crcs and crc_of(data, at, header.size) != header.crc:
                raise Refused(
                    Code.CORRUPT_MESSAGE,
                    f"Partition {chunk.reading.partition}: the batch at offset {header.base_offset} is corrupt.",
                )
            rows = decode_batch(data, at)
            if header.base_offset < start:
                rows = [row for row in rows if row.offset >= start]
            if not rows:
                yield [], header.next_offset
                continue
            offsets, timestamps, keys, values, its_headers = zip(*rows, strict=True)
            after = header.next_offset
            keys = keys if self._key is None else _read(self._key, keys)
            values = values if self._value is None else _read(self._value, values)
            count = min(len(keys), len(values))
            if count < len(rows):
                after = offsets[count]
            kind = repeat(int(header.is_log_append_time))
            found = zip(
                repeat(topic), repeat(partition), offsets, timestamps, kind, keys, values, its_headers
            )  # fmt: skip
            # tuple.__new__ takes the tuple as it is: a third of the time of calling the class.
            yield list(map(tuple.__new__, repeat(ConsumerRecord), found)), after
            if count < len(rows):
                # What comes before a record that cannot be read has been given; now it is told.
                raise self._complaint(rows[count], f"{topic}-{partition}")

    def _complaint(self, row: Record, partition: str) -> BarnabasError:
        for what, deserializer, data in (("key", self._key, row.key), ("value", self._value, row.value)):
            try:
                _read_one(deserializer, data)
            except Exception as why:
                text = (
                    f"The {what} of the record at offset {row.offset} of {partition} cannot be read: {why!r}."
                )
                return BarnabasError(f"{text} Seek behind it to go on.")
        return BarnabasError(f"The record at offset {row.offset} of {partition} could not be read.")


def _read(deserializer: Deserializer, column: Sequence[bytes | None]) -> tuple[Any, ...]:
    """What the deserializer makes of a column; it ends before what cannot be read."""
    try:
        return tuple([None if data is None else deserializer(data) for data in column])
    except Exception:
        good = []
        for data in column:
            try:
                good.append(_read_one(deserializer, data))
            except Exception:
                break
        return tuple(good)


def _read_one(deserializer: Deserializer | None, data: bytes | None) -> Any:
    return data if data is None or deserializer is None else deserializer(data)
