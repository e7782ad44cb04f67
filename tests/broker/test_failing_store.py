"""A metadata store that cannot write: a full disk is waited for, a failing one ends the broker with a sentence."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from barnabas.broker.broker import Broker as RunningBroker
from barnabas.broker.run import _serve
from barnabas.cluster.local import FILE_NAME
from barnabas.config import broker_config
from barnabas.disk import RealFile
from barnabas.errors import BarnabasError, Code
from barnabas.testing import Broker
from barnabas.types import Buffer
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.broker.speaking import batch, connect, create, fetch, produce
from tests.deadline import eventually
from tests.raw import RawConnection

DEADLINE_S = 30.0
SOON = {"log.flush.offset.checkpoint.interval.ms": "20"}

_append, _sync = RealFile.append, RealFile.sync


def failing_append(number: int) -> object:
    def append(self: RealFile, data: Buffer) -> None:
        if FILE_NAME in self.path:
            raise OSError(number, os.strerror(number))
        _append(self, data)

    return append


def failing_sync(number: int) -> object:
    def sync(self: RealFile) -> None:
        if FILE_NAME in self.path:
            raise OSError(number, os.strerror(number))
        _sync(self)

    return sync


def creation(connection: RawConnection, topic: str) -> tuple[Code, str]:
    (row,) = connection.ask(CreateTopicsRequest([CreatableTopic(topic, 1, 1)]), 7).topics
    return Code(row.error_code), row.error_message


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_a_failed_sync_of_the_store_is_never_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        with monkeypatch.context() as failing:
            failing.setattr(RealFile, "sync", failing_sync(number))
            assert creation(connection, "doubtful")[0] is Code.KAFKA_STORAGE_ERROR
        code, message = creation(connection, "later")
        assert code is Code.KAFKA_STORAGE_ERROR
        assert "cannot be written any more" in message
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        assert connection.ask(MetadataRequest(None), 12).topics == []
        create(connection, "doubtful")


@pytest.mark.parametrize(
    ("method", "failing"), [("sync", failing_sync(errno.ENOSPC)), ("append", failing_append(errno.EROFS))]
)
def test_a_broker_whose_store_fails_halts_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, failing: object
) -> None:
    dirs = f"{tmp_path}/a,{tmp_path}/b"
    given, _ = broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": dirs})
    changes: list[asyncio.Task[object]] = []

    def ready(broker: RunningBroker) -> None:
        monkeypatch.setattr(RealFile, method, failing)
        changes.append(asyncio.create_task(broker.metadata.new_producer_id()))

    async def serve() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await _serve(given, ready)

    with pytest.raises(BarnabasError, match=rf"The metadata store {tmp_path}/a/.* Repair the disk"):
        asyncio.run(serve())


def test_without_room_for_a_change_it_is_refused_and_with_room_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        with monkeypatch.context() as full:
            full.setattr(RealFile, "append", failing_append(errno.ENOSPC))
            code, message = creation(connection, "t")
            assert (code, "no space left" in message) == (Code.KAFKA_STORAGE_ERROR, True)
        create(connection, "t")


def test_a_broker_started_on_a_full_disk_takes_no_records_before_its_epoch_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t")
        produce(connection, "t", batch(b"before"))
    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", failing_append(errno.ENOSPC))
        with Broker(SOON, data=tmp_path) as broker, connect(broker) as connection:
            assert b"before" in bytes(fetch(connection, "t", {0: 0})[0].records or b"")
            refused = produce(connection, "t", batch(b"x"))
            assert refused.error_code == Code.KAFKA_STORAGE_ERROR
            assert creation(connection, "u")[0] is Code.KAFKA_STORAGE_ERROR
            full.undo()
            eventually(lambda: produce(connection, "t", batch(b"y")).error_code == 0, "a record to be taken")
            (topic,) = connection.ask(MetadataRequest(None), 12).topics
            assert topic.partitions[0].leader_epoch == 1
            create(connection, "u")


def test_what_is_owed_is_stored_before_the_first_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t")
    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", failing_append(errno.ENOSPC))
        with Broker(data=tmp_path) as broker, connect(broker) as connection:
            full.undo()
            create(connection, "u")
            assert produce(connection, "t", batch(b"x")).error_code == 0
            topics = connection.ask(MetadataRequest(None), 12).topics
            assert {t.name: t.partitions[0].leader_epoch for t in topics} == {"t": 1, "u": 0}


def test_an_empty_folder_on_a_full_disk_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealFile, "append", failing_append(errno.ENOSPC))
    with pytest.raises(BarnabasError, match=rf"The metadata store {tmp_path}/.*: no space left on device\."):
        Broker(data=tmp_path).start()
