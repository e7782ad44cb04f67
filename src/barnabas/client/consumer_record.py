"""What a consumer gives: a record and where it was; and how fetched batches become such records.

PURE. Called by `handout`, which decodes one batch at a time, when its records are asked for.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from barnabas.client.aborted import AbortedTransactions
from barnabas.client.fetches import Chunk
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.wire.batch import BatchHeader, crc_of, decode_flat, headers
from barnabas.wire.records import FlatRecords

CREATE_TIME = 0
LOG_APPEND_TIME = 1

Deserializer = Callable[[bytes], Any]
"""Makes something of a key's or a value's bytes; a null one stays None."""


DecodeLarge = Callable[[memoryview, int, BatchHeader], FlatRecords]

LARGE = 200
"""Records in a batch from which numpy finds them faster than a loop."""

_WORTH_LOADING = 50_000
"""Records of large batches after which the time to load numpy comes back."""


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
        self._seen = 0
        self._decode_large: DecodeLarge | None = None

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
            offsets, timestamps, keys, values, its_headers = self._decode(data, at, header)
            if header.base_offset < start:
                first = bisect_left(offsets, start)
                offsets, timestamps, its_headers = offsets[first:], timestamps[first:], its_headers[first:]
                keys, values = keys[first:], values[first:]
            made_keys = keys if self._key is None else _read(self._key, keys)
            made_values = values if self._value is None else _read(self._value, values)
            count = min(len(made_keys), len(made_values))
            after = header.next_offset if count == len(offsets) else offsets[count]
            kind = repeat(int(header.is_log_append_time))
            found = zip(
                repeat(topic), repeat(partition), offsets, timestamps, kind, made_keys, made_values, its_headers
            )  # fmt: skip
            # tuple.__new__ takes the tuple that zip has made: a third of the time of calling the class.
            yield list(map(tuple.__new__, repeat(ConsumerRecord), found)), after
            if count < len(offsets):
                # What comes before a record that cannot be read has been given; now it is told.
                raise self._complaint(f"offset {after} of {topic}-{partition}", keys[count], values[count])

    def _decode(self, data: memoryview, at: int, header: BatchHeader) -> FlatRecords:
        if header.count < LARGE:
            return decode_flat(data, at)
        if self._decode_large is None:
            self._seen += header.count
            if self._seen < _WORTH_LOADING:
                return decode_flat(data, at)
            self._decode_large = _large_decoder()
        return self._decode_large(data, at, header)

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


def _large_decoder() -> DecodeLarge:
    """What finds the records of large batches with numpy, where that is installed."""
    try:
        from barnabas.client.large_batches import decode_large
    except (ImportError, BarnabasError):
        return lambda data, at, header: decode_flat(data, at)
    return decode_large


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
