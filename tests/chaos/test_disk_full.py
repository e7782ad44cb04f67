"""Fills the disk under a producer: it is told so, readers notice nothing, and with room it goes on."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.errors import Code
from tests import segments
from tests.chaos.small_disk import DISKS, SmallDisk
from tests.deadline import eventually
from tests.other_clients.adapters.adapter import Record, Refusal
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.other_clients.records import FIRST_MS

CHUNK = 40
CHUNKS = 60  # of 400 KB: more than either disk takes


@pytest.fixture(params=DISKS, ids=lambda kind: kind.__name__)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    disk = request.param(tmp_path / "small")
    yield disk
    disk.close()


@pytest.fixture
def client(disk: SmallDisk) -> Iterator[ConfluentAdapter]:
    with ConfluentAdapter(disk.broker.bootstrap) as client:
        client.create_topic("full", 1, {"retention.ms": "-1"})
        yield client


def _chunk(number: int) -> list[Record]:
    chance = random.Random(number)
    return [Record(b"%d" % number, chance.randbytes(10_000), (), FIRST_MS + number) for _ in range(CHUNK)]


def _fill(client: ConfluentAdapter) -> tuple[list[Record], Refusal]:
    """Produces until the broker refuses; gives what it has acknowledged, and the refusal."""
    written: list[Record] = []
    for number in range(CHUNKS):
        chunk = _chunk(number)
        try:
            client.produce("full", 0, chunk, retries=0)
        except Refusal as refused:
            return written, refused
        written += chunk
    raise AssertionError("the disk took everything")


def _acknowledged_are_read(client: ConfluentAdapter, written: list[Record]) -> None:
    assert [s.record for s in client.read("full", 0, 0, len(written))] == written


def test_a_full_disk_is_told_to_the_producer_and_readers_go_on(
    disk: SmallDisk, client: ConfluentAdapter
) -> None:
    written, refused = _fill(client)
    assert refused.code == Code.KAFKA_STORAGE_ERROR
    assert written
    _acknowledged_are_read(client, written)
    # Nothing torn stays behind the last whole batch, and what was refused is not served.
    assert segments.check_all(disk.data()) == client.offsets("full", 0)[1]


def test_with_room_again_writes_go_on(disk: SmallDisk, client: ConfluentAdapter) -> None:
    written, _ = _fill(client)
    disk.make_room()
    end = client.offsets("full", 0)[1]
    more = _chunk(CHUNKS)[:1]

    def accepted() -> list[int]:
        try:
            return client.produce("full", 0, more, retries=0)
        except Refusal:
            return []

    assert eventually(accepted, "a record to be taken") == [end]
    _acknowledged_are_read(client, written)
    assert client.read("full", 0, end, 1)[0].record == more[0]


def test_a_broker_killed_on_a_full_disk_comes_back_with_all_it_acknowledged(
    disk: SmallDisk, client: ConfluentAdapter
) -> None:
    written, _ = _fill(client)
    disk.broker.kill()
    disk.make_room()
    disk.broker.start()
    _acknowledged_are_read(client, written)
    segments.check_all(disk.data())
    end = client.offsets("full", 0)[1]
    assert client.produce("full", 0, _chunk(CHUNKS)[:1]) == [end]


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
def test_a_broker_starts_on_a_full_disk_serves_reads_and_takes_records_once_there_is_room(
    disk: SmallDisk, client: ConfluentAdapter, clean: bool
) -> None:
    written, _ = _fill(client)
    disk.fill_up()
    if clean:
        disk.broker.stop()
    else:
        disk.broker.kill()
    disk.broker.start()
    _acknowledged_are_read(client, written)
    disk.make_room()
    end = client.offsets("full", 0)[1]
    more = _chunk(CHUNKS)[:1]

    def accepted() -> list[int]:
        try:
            return client.produce("full", 0, more, retries=0)
        except Refusal:
            return []

    assert eventually(accepted, "a record to be taken") == [end]
    assert client.read("full", 0, end, 1)[0].record == more[0]
