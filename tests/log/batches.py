"""What tests of the log share: batches, reading a whole log back, holding its files against a full scan."""

from itertools import pairwise

from barnabas.config import TopicConfig
from barnabas.log.log import Log
from barnabas.log.producers import ProducerStates
from barnabas.testing.disk import SimulatedDisk
from barnabas.types import LeaderEpoch, Millis, Offset
from barnabas.wire.batch import BatchHeader, Record, crc_of, decode_batch, encode_batch, headers, read_header
from barnabas.wire.compression import Compression

NOW = Millis(1_700_000_000_000)
SMALL = TopicConfig(segment_bytes=700, index_interval_bytes=150, max_message_bytes=600)
"""Segments of a few batches with several entries in each index."""

FOLDER = "data/topic-0"


def open_log(config: TopicConfig = SMALL, disk: SimulatedDisk | None = None, **more: int) -> Log:
    return Log.open(disk or SimulatedDisk(), FOLDER, config, now=NOW, **more)  # type: ignore[arg-type]


def filled_log(count: int = 60, config: TopicConfig = SMALL) -> Log:
    """A log of several segments: one record a batch, each a millisecond later than the one before."""
    log = open_log(config)
    for number in range(count):
        append(log, b"%d" % number * 20, timestamp=NOW + number)
    return log


def batch(
    *values: bytes,
    timestamp: int = NOW,
    pid: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    codec: Compression = Compression.NONE,
) -> memoryview:
    """A producer's batch, its records a millisecond apart."""
    records = [Record(i, timestamp + i, None, value) for i, value in enumerate(values or (b"value",))]
    if pid < 0:
        return memoryview(bytearray(encode_batch(records, codec=codec)))
    encoded = encode_batch(
        records, codec=codec, producer_id=pid, producer_epoch=producer_epoch, base_sequence=sequence
    )
    return memoryview(bytearray(encoded))


def append(log: Log, *values: bytes, timestamp: int = NOW, epoch: int = 0, now: int = NOW) -> Offset:
    """Append a plain batch; its first offset."""
    made = batch(*values, timestamp=timestamp)
    return log.append(made, epoch=LeaderEpoch(epoch), now=Millis(now)).first


def stored_batches(log: Log, max_bytes: int = 500) -> list[bytes]:
    """All batches from the log's start to its end, read as a consumer reads them."""
    found: list[bytes] = []
    offset = log.start
    while (part := log.read(offset, max_bytes, log.end)) is not None:
        data = part.read()
        assert len(data) == len(part)
        whole = list(headers(data))
        assert whole, "the first batch must be whole"
        for at, header in whole:
            assert crc_of(data, at, header.size) == header.crc
            assert header.last_offset >= offset
            found.append(data[at : at + header.size])
            offset = header.next_offset
    assert offset == log.end
    return found


def values_of(log: Log) -> list[bytes | None]:
    """The values of all records from the log's start to its end."""
    records = [record for data in stored_batches(log) for record in decode_batch(data)]
    return [record.value for record in records if record.offset >= log.start]


def check_files(log: Log) -> None:
    """Hold segments, indexes and look-ups against a full scan of the files."""
    for before, after in pairwise(log.segments):
        assert before.end == after.base
    assert log.size == sum(segment.file.size for segment in log.segments)
    assert log.segments[-1].end == log.end
    for segment in log.segments:
        data = segment.file.pread(segment.file.size, 0)
        assert len(data) == segment.size
        scanned = list(headers(data))
        assert sum(header.size for _, header in scanned) == len(data)
        by_place = dict(scanned)
        entries = [segment.offsets[i] for i in range(len(segment.offsets))]
        assert entries == sorted(set(entries))
        for relative, position in entries:
            assert by_place[position].last_offset == segment.base + relative
        largest = max((header.max_timestamp for _, header in scanned), default=-1)
        assert segment.max_timestamp == largest
        _check_times(segment.base, [segment.times[i] for i in range(len(segment.times))], scanned)
        for position, header in scanned:
            for offset in {header.base_offset, header.last_offset}:
                assert segment.locate(Offset(offset)) == (position, header.size)


def _check_times(base: int, times: list[tuple[int, int]], scanned: list[tuple[int, BatchHeader]]) -> None:
    by_last = {header.last_offset: header for _, header in scanned}
    assert [timestamp for timestamp, _ in times] == sorted({timestamp for timestamp, _ in times})
    for timestamp, relative in times:
        assert by_last[Offset(base + relative)].max_timestamp == timestamp
        earlier = [header for _, header in scanned if header.last_offset <= base + relative]
        assert max(header.max_timestamp for header in earlier) == timestamp


def check_producers(log: Log) -> None:
    """Hold the producers' state against one made from nothing but the batches that are there."""
    fresh = ProducerStates()
    for data in stored_batches(log):
        fresh.replay(read_header(data), data, NOW)
    for producer_id, state in fresh.by_id.items():
        kept = log.producers.by_id[producer_id]
        assert (kept.epoch, kept.next_sequence) == (state.epoch, state.next_sequence)
        assert kept.batches[-1] == state.batches[-1]
    for producer_id in log.producers.by_id.keys() - fresh.by_id.keys():
        assert log.producers.by_id[producer_id].batches[-1].last < log.start
    assert log.producers.end == log.end
