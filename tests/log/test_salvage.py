"""All of a damaged log that can be read is read: batches that no damage has touched, and nothing else."""

# mypy: disable-error-code="arg-type"
# Offsets and times are plain numbers in here.

from random import Random

import pytest

from barnabas.config import TopicConfig
from barnabas.log.log import Log
from barnabas.testing.disk import SimulatedDisk
from barnabas.wire.batch import Record, decode_batch, encode_batch, headers

FOLDER = "/t-0"


def filled(disk: SimulatedDisk, random: Random) -> Log:
    disk.make_dir(FOLDER)
    log = Log.open(disk, FOLDER, TopicConfig(segment_bytes=400_000), now=0)
    for number in range(60):
        size = random.choice((10, 300, 5_000, 90_000, 200_000)) if number % 3 == 0 else 40
        value = b"%d:" % number + random.randbytes(size)
        batch = encode_batch([Record(0, 1, None, value)])
        log.append(memoryview(bytearray(batch)), epoch=0, now=1)
    return log


def numbers(log: Log) -> list[int]:
    return [
        int((record.value or b"").partition(b":")[0])
        for piece in log.salvage(log.end)
        for at, _ in piece.batches
        for record in decode_batch(piece.data, at)
    ]


def test_a_whole_log_is_read_from_its_start_to_where_it_is_asked_for() -> None:
    log = filled(SimulatedDisk(), Random(1))
    assert numbers(log) == list(range(60))
    assert all(piece.damaged == 0 for piece in log.salvage(log.end))
    log.advance_start(7)
    assert len([row for piece in log.salvage(31) for row in piece.batches]) == 24


@pytest.mark.parametrize("seed", range(40))
def test_damage_costs_the_batches_that_it_has_hit(seed: int) -> None:
    random, disk = Random(seed), SimulatedDisk()
    log = filled(disk, random)
    hit, offset, where = set(), 0, {}
    for name in disk.list(FOLDER):
        if name.endswith(".log"):
            data = disk.open(f"{FOLDER}/{name}").pread(1 << 30, 0)
            for at, header in headers(data):
                where[offset] = name, at, header.size
                offset += 1
    assert offset == 60
    for _ in range(random.randint(1, 6)):
        number = random.randrange(60)
        name, at, size = where[number]
        begin = random.choice((8, 9, 10, 11, 16, 17, 30, random.randrange(17, size)))
        content = disk._root.entries["t-0"].entries[name]  # type: ignore[union-attr]
        assert not hasattr(content, "entries")
        if number not in hit:
            content.data[at + begin] ^= 1 << random.randrange(8)
        hit.add(number)
    assert numbers(log) == [number for number in range(60) if number not in hit]
    damaged = sum(piece.damaged for piece in log.salvage(log.end))
    assert damaged == sum(where[number][2] for number in hit)
