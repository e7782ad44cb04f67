"""Sends record batches that lie: bombs, wrong checksums, false counts. Each is refused and none is written."""

import functools
import random
import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam
import pytest
import zstandard

from barnabas.errors import Code
from barnabas.wire import batch as layout
from barnabas.wire.compression import Compression
from barnabas.wire.records import varint
from tests import segments
from tests.hostile import corpus
from tests.hostile.neighbour import Neighbour
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.process import BrokerProcess
from tests.raw import RawConnection

MIB = 1 << 20
MAY_GROW_MIB = 300


def _record_of(mib: int) -> Iterator[bytes]:
    """A sound record, piece by piece, whose value is so many MiB of zeros."""
    value = varint(mib * MIB)
    head = b"\0\0\0" + varint(1) + b"k" + value
    yield varint(len(head) + mib * MIB + 1) + head
    for _ in range(mib):
        yield bytes(MIB)
    yield b"\0"


@functools.cache
def _gzip_bomb() -> bytes:
    pack = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(map(pack.compress, _record_of(800))) + pack.flush()


@functools.cache
def _zstd_bomb() -> bytes:
    pack = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join(map(pack.compress, _record_of(2000))) + pack.flush()


@functools.cache
def _lz4_bomb() -> bytes:
    pack = cramjam.lz4.Compressor()
    for piece in _record_of(200):
        pack.compress(piece)
    return bytes(pack.finish())


def _snappy_bomb() -> bytes:
    # A snappy block says its size in front: here 1 GiB, in a few bytes.
    return bytes([0x80, 0x80, 0x80, 0x80, 0x04]) + b"\0x"


BOMBS: dict[Compression, Callable[[], bytes]] = {
    Compression.GZIP: _gzip_bomb,
    Compression.ZSTD: _zstd_bomb,
    Compression.LZ4: _lz4_bomb,
    Compression.SNAPPY: _snappy_bomb,
}


def _with(data: bytes, at: int, kind: str, value: int) -> bytes:
    """A batch with one field of its header changed, and the checksum made right again."""
    changed = bytearray(data)
    struct.pack_into(kind, changed, at, value)
    layout.seal(changed, 0, len(changed))
    return bytes(changed)


def _batch_of(codec: Compression, body: bytes) -> bytes:
    """A batch whose compressed records are given."""
    head = bytearray(corpus.batch(1)[: layout.HEADER_SIZE]) + body
    struct.pack_into(">i", head, layout.LENGTH_AT, len(head) - layout.LOG_OVERHEAD)
    struct.pack_into(">h", head, layout.ATTRIBUTES_AT, codec)
    layout.seal(head, 0, len(head))
    return bytes(head)


def _produce(victim: BrokerProcess, topic: str, records: bytes) -> int:
    with RawConnection(victim.port) as connection:
        answer = connection.ask(corpus.produce_request(topic, records), 9)
        return int(answer.responses[0].partition_responses[0].error_code)


@pytest.fixture(scope="module")
def client(victim: BrokerProcess) -> ConfluentAdapter:
    return ConfluentAdapter(victim.bootstrap)


def _configs(kind: str, codec: Compression) -> dict[str, str]:
    """Settings for which the broker has to look into a batch of this codec."""
    if kind == "compacted":
        return {"cleanup.policy": "compact"}
    return {"compression.type": "gzip" if codec == Compression.ZSTD else "zstd"}


@pytest.mark.parametrize("kind", ["recompressed", "compacted"])
@pytest.mark.parametrize("codec", BOMBS, ids=lambda codec: codec.name)
def test_a_bomb_is_refused_before_it_takes_memory(
    victim: BrokerProcess, client: ConfluentAdapter, codec: Compression, kind: str
) -> None:
    topic = f"bomb-{codec.name}-{kind}"
    client.create_topic(topic, 1, _configs(kind, codec))
    bomb = _batch_of(codec, BOMBS[codec]())
    assert len(bomb) < 1_048_588, "a bomb has to fit through max.message.bytes"
    before = victim.forget_peak()
    with Neighbour(victim) as neighbour:
        for _ in range(3):
            assert _produce(victim, topic, bomb) != 0
    assert victim.peak_mib() < before + MAY_GROW_MIB
    assert neighbour.longest_s < 5
    assert client.offsets(topic, 0) == (0, 0)
    assert _produce(victim, topic, corpus.batch(5, codec)) == 0


@pytest.mark.parametrize("codec", BOMBS, ids=lambda codec: codec.name)
def test_a_bomb_that_passes_through_is_not_opened_by_a_search_for_a_time(
    victim: BrokerProcess, client: ConfluentAdapter, codec: Compression
) -> None:
    topic = f"passed-{codec.name}"
    client.create_topic(topic, 1, {"retention.ms": "-1"})
    _produce(victim, topic, _batch_of(codec, BOMBS[codec]()))
    before = victim.forget_peak()
    with Neighbour(victim), RawConnection(victim.port) as connection:
        for time in (0, 1_750_000_000_000, -3):
            connection.ask(corpus.list_offsets_request(topic, time), 7)
    assert victim.running, victim.said()
    assert victim.peak_mib() < before + MAY_GROW_MIB


def test_a_wrong_checksum_is_corrupt_and_not_written(victim: BrokerProcess, client: ConfluentAdapter) -> None:
    client.create_topic("checksum", 1)
    chance = random.Random(5)
    with Neighbour(victim):
        for _ in range(200):
            broken = bytearray(corpus.batch(5))
            broken[chance.randrange(layout.ATTRIBUTES_AT, len(broken))] ^= 1 << chance.randrange(8)
            assert _produce(victim, "checksum", bytes(broken)) == Code.CORRUPT_MESSAGE
    assert client.offsets("checksum", 0) == (0, 0)


LIES: dict[str, Callable[[], bytes]] = {
    "too many records": lambda: _with(corpus.batch(5), layout.COUNT_AT, ">i", 0x7FFFFFFF),
    "no records": lambda: _with(corpus.batch(5), layout.COUNT_AT, ">i", 0),
    "fewer than none": lambda: _with(corpus.batch(5), layout.COUNT_AT, ">i", -5),
    "offsets that go back": lambda: _with(corpus.batch(5), layout.LAST_OFFSET_DELTA_AT, ">i", -1),
    "offsets that leap": lambda: _with(corpus.batch(5), layout.LAST_OFFSET_DELTA_AT, ">i", 0x7FFFFFFF),
    "magic of old": lambda: _with(corpus.batch(5), layout.MAGIC_AT, ">b", 1),
    "magic to come": lambda: _with(corpus.batch(5), layout.MAGIC_AT, ">b", 3),
    "a codec nobody knows": lambda: _with(corpus.batch(5), layout.ATTRIBUTES_AT, ">h", 7),
    "a control batch": lambda: _with(corpus.batch(5), layout.ATTRIBUTES_AT, ">h", layout.CONTROL),
    "a length past the end": lambda: _with(corpus.batch(5), layout.LENGTH_AT, ">i", 0x7FFFFFFF),
    "a length below none": lambda: _with(corpus.batch(5), layout.LENGTH_AT, ">i", -1),
    "a cut batch": lambda: corpus.batch(5)[:-7],
    "half a header": lambda: corpus.batch(5)[:30],
    "nothing": lambda: b"",
    "two batches": lambda: corpus.batch(5) + corpus.batch(5),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_batch_that_lies_is_refused_and_not_written(
    victim: BrokerProcess, client: ConfluentAdapter, lie: str
) -> None:
    topic = "lie-" + lie.replace(" ", "-")
    client.create_topic(topic, 1)
    with Neighbour(victim):
        assert _produce(victim, topic, LIES[lie]()) != 0
    assert client.offsets(topic, 0) == (0, 0)
    assert _produce(victim, topic, corpus.batch(5)) == 0
    assert client.offsets(topic, 0) == (0, 5)


def test_what_hangs_behind_a_batch_is_not_written(victim: BrokerProcess, client: ConfluentAdapter) -> None:
    client.create_topic("behind", 1)
    # Kafka cuts it off and takes the batch; to refuse both is as good.
    taken = _produce(victim, "behind", corpus.batch(5) + b"\0" * 9) == 0
    assert client.offsets("behind", 0) == (0, 5 if taken else 0)
    assert sum(h.count for h, _ in segments.batches(segments.partition(victim.data, "behind-0"))) == 5 * taken


def test_nothing_on_disk_is_broken_after_all_that(victim: BrokerProcess) -> None:
    assert segments.check_all(victim.data, growing=True) > 0
