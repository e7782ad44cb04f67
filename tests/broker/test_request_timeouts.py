"""How long a change of topics is waited for: as long as its request says, while the change itself goes on."""

import os
import select
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.cluster.local import FILE_NAME
from barnabas.disk import RealDisk, RealFile
from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.frames import decode_response
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.speaking import connect, create
from tests.raw import RawConnection, frame_of


class SlowDisk(RealDisk):
    """Takes changes of the cluster only while it is `free`."""

    def __init__(self, free: threading.Event) -> None:
        self._free = free

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        return SlowFile(file, self._free) if path.endswith(FILE_NAME) else file


class SlowFile(RealFile):
    __slots__ = ("_free",)

    def __init__(self, file: RealFile, free: threading.Event) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        self._free = free

    def sync(self) -> None:
        assert self._free.wait(60)
        super().sync()


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    event = threading.Event()
    event.set()
    monkeypatch.setattr("barnabas.broker.broker.RealDisk", lambda: SlowDisk(event))
    yield event
    event.set()


def partitions(connection: RawConnection) -> dict[str, int]:
    """Topics and how many partitions each has."""
    return {row.name: len(row.partitions) for row in connection.ask(MetadataRequest(None), 12).topics}


CHANGES: list[tuple[Callable[[int], Any], int, dict[str, int]]] = [
    (
        lambda timeout_ms: CreateTopicsRequest(
            [CreatableTopic("c", 3, 1), CreatableTopic("d", 4, 1)], timeout_ms
        ),
        7,
        {"a": 1, "b": 1, "c": 3, "last": 1},
    ),
    (
        lambda timeout_ms: CreatePartitionsRequest(
            [CreatePartitionsTopic("a", 2), CreatePartitionsTopic("b", 3)], timeout_ms
        ),
        3,
        {"a": 2, "b": 1, "last": 1},
    ),
    (
        lambda timeout_ms: DeleteTopicsRequest(
            [DeleteTopicState("a"), DeleteTopicState("b")], timeout_ms=timeout_ms
        ),
        6,
        {"b": 1, "last": 1},
    ),
]


@pytest.mark.parametrize(
    ("request_for", "version", "after"), CHANGES, ids=["CreateTopics", "CreatePartitions", "DeleteTopics"]
)
def test_a_change_that_takes_too_long_is_told_and_goes_on(
    free: threading.Event, request_for: Callable[[int], Any], version: int, after: dict[str, int]
) -> None:
    with Broker() as broker, connect(broker) as connection:
        create(connection, "a")
        create(connection, "b")
        free.clear()
        answer = connection.ask(request_for(1), version)
        (rows,) = [
            getattr(answer, name) for name in ("topics", "results", "responses") if hasattr(answer, name)
        ]
        assert [row.error_code for row in rows] == [Code.REQUEST_TIMED_OUT] * 2
        assert "1 ms" in rows[0].error_message
        assert partitions(connection) == {"a": 1, "b": 1}
        free.set()
        # One change at a time: after this one the first is done. The second lost its turn with its client's patience.
        create(connection, "last")
        assert partitions(connection) == after


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_without_a_time_limit_waits_until_it_is_done(
    free: threading.Event, timeout_ms: int
) -> None:
    with Broker() as broker, connect(broker) as patient, connect(broker) as hasty:
        free.clear()
        patient.send(frame_of(CreateTopicsRequest([CreatableTopic("t", 1, 1)], timeout_ms), 7))
        (row,) = hasty.ask(CreateTopicsRequest([CreatableTopic("u", 1, 1)], 1), 7).topics
        assert row.error_code == Code.REQUEST_TIMED_OUT
        assert not select.select([patient.socket], [], [], 0)[0]
        free.set()
        _, answer = decode_response(CreateTopicsResponse, 7, patient.receive())
        assert answer.topics[0].error_code == 0
