"""What tests of the log share: batches, reading a whole log back, holding its files against a full scan."""

from itertools import pairwise

from barnabas.config import TopicConfig
from barnabas.log.log import Log
from barnabas.log.producers import ProducerStates
from barnabas.log.transactions.markers import marker_batch, read_marker
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
    transactional: bool = False,
) -> memoryview:
    """A producer's batch, its records a millisecond apart."""
    records = [Record(i, timestamp + i, None, value) for i, value in enumerate(values or (b"value",))]
    if pid < 0:
        return memoryview(bytearray(encode_batch(records, codec=codec)))
    encoded = encode_batch(
        records,
        codec=codec,
        producer_id=pid,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return memoryview(bytearray(encoded))


def write_in_transaction(log: Log, *values: bytes, pid: int, producer_epoch: int = 0) -> Offset:
    """Append a batch of a producer's transaction, with the sequence number that is due; its first offset."""
    state = log.producers.by_id.get(pid)
    sequence = state.next_sequence if state is not None and state.epoch == producer_epoch else 0
    made = batch(*values, pid=pid, producer_epoch=producer_epoch, sequence=sequence, transactional=True)
    return log.append(made, epoch=LeaderEpoch(0), now=NOW).first


def end_transaction(
    log: Log, pid: int, *, commit: bool, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> Offset:
    """Append a marker; its offset."""
    made = marker_batch(pid, producer_epoch, coordinator_epoch, commit=commit, now=NOW)
    return log.append_marker(memoryview(made), epoch=LeaderEpoch(0), now=NOW)


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


def committed_records(log: Log, below: Offset, max_bytes: int = 500) -> list[Record]:
    """All records below `below` as a reader of committed ones has them: it goes by what each answer says was aborted.

    A producer's batches are skipped from the first offset of its aborted transaction on, up to the marker that ends it.
    """
    found: list[Record] = []
    offset = log.start
    while (part := log.read(offset, max_bytes, below)) is not None:
        waiting = sorted((each.first, each.producer_id) for each in log.aborted_in(offset, part))
        aborted: set[int] = set()
        data = part.read()
        for at, header in headers(data):
            while waiting and waiting[0][0] <= header.last_offset:
                aborted.add(waiting.pop(0)[1])
            if header.is_control:
                marker = read_marker(data[at : at + header.size]) if header.count else None
                if marker is not None and not marker.commit:
                    aborted.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in aborted:
                found += [each for each in decode_batch(data, at) if each.offset >= offset]
            offset = header.next_offset
    return found


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
        assert kept.epoch == state.epoch
        if state.batches:
            assert kept.next_sequence == state.next_sequence
            # Kafka's snapshot has one time for the last batch and a marker behind it.
            assert kept.batches[-1]._replace(timestamp=NOW) == state.batches[-1]._replace(timestamp=NOW)
    for producer_id in log.producers.by_id.keys() - fresh.by_id.keys():
        assert all(stored.last < log.start for stored in log.producers.by_id[producer_id].batches)
    assert log.producers.end == log.end


def check_transactions(log: Log) -> None:
    """Hold open and aborted transactions against the batches that are there, from the log's start on.

    What began before it is known by snapshots alone, so its beginning is not looked at.
    """
    fresh = ProducerStates()
    aborted = {}
    for segment in log.segments:
        for position, header in segment.headers_from(log.start):
            ended = fresh.replay(header, segment.read_batch(position, header.size), NOW)
            if ended is not None and ended.aborted:
                aborted[ended.last] = ended
    found = [(segment, each) for segment in log.segments for each in segment.aborted]
    first = log.start
    assert [each.last for _, each in found] == sorted(each.last for _, each in found)
    assert all(segment.base <= each.last < segment.end for segment, each in found)
    for _, each in found:
        if each.first >= first:
            assert aborted[each.last].entry._replace(last_stable=each.last_stable) == each
    assert aborted.keys() <= {each.last for _, each in found}
    for producer_id, state in fresh.by_id.items():
        begun = log.producers.by_id[producer_id].transaction
        assert begun == state.transaction or 0 <= begun < first
    fresh.acknowledge(log.end)
    unstable = log.producers.first_unstable
    if fresh.first_unstable is not None:
        assert unstable is not None, "an open transaction holds nothing up"
        assert unstable <= fresh.first_unstable, "readers of what is committed see an open transaction"
