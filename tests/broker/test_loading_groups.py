"""Coordinators that are loaded from a partition which is damaged, or which cannot be read for the moment."""

import errno
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.disk import RealDisk, RealFile
from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.batch import HEADER_SIZE, LENGTH_AT, BatchHeader, headers
from barnabas.wire.messages.groups import ListGroupsRequest
from tests.broker.speaking import connect, create
from tests.broker.test_groups import commit, committed, find
from tests.deadline import eventually
from tests.raw import RawConnection

SETTINGS = {"offsets.topic.num.partitions": "1", "offsets.topic.segment.bytes": "640"}
GROUPS = [f"g{number}" for number in range(9)]


def fill(data: Path) -> list[tuple[int, BatchHeader]]:
    """Where the first five commits lie: in the first segment of their topic."""
    with Broker(SETTINGS, data=data) as broker, connect(broker) as connection:
        create(connection, "t")
        find(connection, GROUPS[0])
        for number, group in enumerate(GROUPS):
            assert commit(connection, group, "t", number) == Code.NONE
    return list(headers(segment(data).read_bytes()))


def segment(data: Path) -> Path:
    return min((data / "__consumer_offsets-0").glob("*.log"))


def damage(data: Path, at: int, replacement: bytes) -> None:
    with segment(data).open("r+b") as file:
        file.seek(at)
        file.write(replacement)


def offsets(connection: RawConnection) -> list[int]:
    eventually(lambda: connection.ask(ListGroupsRequest(), 5).error_code == Code.NONE, "the load")
    return [committed(connection, group, "t") for group in GROUPS]


@pytest.mark.parametrize("at", [0, 3, 4])
@pytest.mark.parametrize(
    ("place", "replacement"),
    [
        pytest.param(LENGTH_AT, (1 << 16).to_bytes(4, "big"), id="a length past the end"),
        pytest.param(LENGTH_AT, (1 << 30).to_bytes(4, "big"), id="an enormous length"),
        pytest.param(LENGTH_AT, (300).to_bytes(4, "big"), id="a length of several batches"),
        pytest.param(LENGTH_AT, (7).to_bytes(4, "big"), id="a length too small"),
        pytest.param(LENGTH_AT, (-5).to_bytes(4, "big", signed=True), id="a length below zero"),
        pytest.param(16, b"\x09", id="a magic that is none"),
        pytest.param(HEADER_SIZE + 12, b"\xff\xff\xff", id="records"),
        pytest.param(0, bytes(100), id="zeros"),
    ],
)
def test_damage_costs_what_is_damaged_and_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int, place: int, replacement: bytes
) -> None:
    batches = fill(tmp_path)
    assert len(batches) == 5
    damage(tmp_path, batches[at][0] + place, replacement)
    with (
        caplog.at_level(logging.ERROR, "barnabas.coordinators"),
        Broker(SETTINGS, data=tmp_path) as broker,
        connect(broker) as connection,
    ):
        assert offsets(connection) == [number if number != at else -1 for number in range(len(GROUPS))]
        assert commit(connection, GROUPS[at], "t", 70) == Code.NONE
    lines = [record.getMessage() for record in caplog.records if record.name == "barnabas.coordinators"]
    assert len(lines) == 1
    assert "__consumer_offsets-0 is damaged: 1 place of" in lines[0]


class ShortOfFiles(RealDisk):
    """Opens nothing of `__consumer_offsets` while `short` is set."""

    def __init__(self, short: threading.Event) -> None:
        self.short = short
        self.refused = threading.Event()
        self.armed = False

    def open(self, path: str, *, create: bool = False) -> RealFile:
        if self.short.is_set() and "__consumer_offsets-0/" in path:
            self.refused.set()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, create=create)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[ShortOfFiles]:
    from barnabas.broker.coordinators.groups import Groups

    made = ShortOfFiles(threading.Event())
    monkeypatch.setattr("barnabas.broker.broker.RealDisk", lambda: made)
    start = Groups.start

    def start_without_files(groups: Groups) -> None:
        if made.armed:
            made.short.set()
        start(groups)

    monkeypatch.setattr(Groups, "start", start_without_files)
    yield made
    made.short.clear()


def test_a_read_that_is_refused_is_tried_again(tmp_path: Path, disk: ShortOfFiles) -> None:
    fill(tmp_path)
    disk.armed = True
    with Broker(SETTINGS, data=tmp_path) as broker, connect(broker) as connection:
        assert disk.refused.wait(30)
        assert commit(connection, "g0", "t", 1) == Code.COORDINATOR_LOAD_IN_PROGRESS
        disk.short.clear()
        assert offsets(connection) == list(range(9))
        assert commit(connection, "g0", "t", 1) == Code.NONE
