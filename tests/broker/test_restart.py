"""A broker that comes back: same topics, same records, a new epoch; and folders it must not touch."""

import asyncio
import errno
import json
import os
import shutil
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas import Producer
from barnabas.broker.broker import Broker as RunningBroker
from barnabas.broker.run import _serve
from barnabas.cluster.local import FILE_NAME
from barnabas.config import broker_config
from barnabas.disk import RealDisk, RealFile
from barnabas.errors import BarnabasError, Code
from barnabas.log.directory import DataDirectory
from barnabas.testing import Broker
from barnabas.types import Buffer
from barnabas.wire.messages.coordinator import FindCoordinatorRequest
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offsets import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from barnabas.wire.messages.topics import DeleteTopicsRequest
from tests.broker.speaking import batch, connect, create, fetch, produce, produce_request
from tests.deadline import eventually
from tests.process import BrokerProcess, free_port
from tests.raw import RawConnection, frame_of

DEADLINE_S = 30.0


def test_all_is_there_after_a_clean_stop(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t", 2)
        produce(connection, "t", batch(b"before"), 1)
        cluster = connection.ask(MetadataRequest(None), 12)
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        again = connection.ask(MetadataRequest(None), 12)
        assert again.cluster_id == cluster.cluster_id
        assert again.topics[0].topic_id == cluster.topics[0].topic_id
        assert [p.leader_epoch for p in again.topics[0].partitions] == [1, 1]
        assert b"before" in bytes(fetch(connection, "t", {1: 0})[0].records or b"")
        assert produce(connection, "t", batch(b"after"), 1).base_offset == 1
    assert not (tmp_path / "t-0" / "00000000000000000001.log").exists()


@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_a_batch_repeated_after_a_restart_is_answered_with_where_it_is(
    start_broker: Callable[..., BrokerProcess], stop: str
) -> None:
    """A producer has up to five batches under way when the broker stops: each may come again, not just the last."""
    facts = {"producer_id": 4000, "producer_epoch": 0}
    batches = [batch(b"a%d" % n, b"b%d" % n, base_sequence=2 * n, **facts) for n in range(5)]
    broker = start_broker()
    with RawConnection(broker.port) as connection:
        create(connection, "t")
        assert [produce(connection, "t", each).base_offset for each in batches] == [0, 2, 4, 6, 8]
    if stop == "killed":
        broker.kill()
    else:
        assert broker.stop() == 0
    broker.start()
    with RawConnection(broker.port) as connection:
        again = produce(connection, "t", batches[1])
        assert (again.error_code, again.base_offset) == (0, 2)
        following = produce(connection, "t", batch(b"on", base_sequence=10, **facts))
        assert (following.error_code, following.base_offset) == (0, 10)


def test_a_second_broker_keeps_out_of_the_folder(tmp_path: Path) -> None:
    with Broker(data=tmp_path), pytest.raises(BarnabasError, match="in use"):
        Broker(data=tmp_path).start()
    with Broker(data=tmp_path):
        pass


def test_a_taken_port_gets_a_sentence(tmp_path: Path) -> None:
    with Broker() as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        with pytest.raises(BarnabasError, match=f"Port {port} .* is taken: .*--listen"):
            Broker(port=port, data=tmp_path).start()


def test_partitions_without_their_metadata_are_not_touched(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t")
        produce(connection, "t", batch(b"precious"))
    (tmp_path / FILE_NAME).unlink()
    with pytest.raises(BarnabasError, match="which topics they belong to"):
        Broker(data=tmp_path).start()
    assert (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size > 0
    assert not (tmp_path / FILE_NAME).exists()


def test_partitions_are_spread_over_data_directories_and_one_may_fail(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    settings = {"log.dirs": ",".join(map(str, folders))}
    with Broker(settings) as broker, connect(broker) as connection:
        create(connection, "t", 6)
        for index in range(6):
            produce(connection, "t", batch(b"%d" % index), index)
    homes = {name: sorted(p.name for p in (tmp_path / name).glob("t-*")) for name in "abc"}
    assert [len(names) for names in homes.values()] == [2, 2, 2]
    # A file where the folder was: the directory cannot be opened any more.
    os.rename(folders[1], tmp_path / "saved")
    folders[1].write_text("not a folder")
    with Broker(settings) as broker, connect(broker) as connection:
        lost = {int(name.removeprefix("t-")) for name in homes["b"]}
        (topic,) = connection.ask(MetadataRequest([MetadataRequestTopic(name="t")]), 12).topics
        assert {p.partition_index for p in topic.partitions if p.leader_id == -1} == lost
        for index in range(6):
            code = produce(connection, "t", batch(b"more"), index).error_code
            assert code == (Code.KAFKA_STORAGE_ERROR if index in lost else 0)
        create(connection, "new", 2)
        assert produce(connection, "new", batch(b"x"), 1).error_code == 0
    folders[1].unlink()
    os.rename(tmp_path / "saved", folders[1])
    with Broker(settings) as broker, connect(broker) as connection:
        for index in range(6):
            assert fetch(connection, "t", {index: 0})[0].high_watermark == (1 if index in lost else 2)


def test_retention_runs_by_itself_and_readers_learn_the_new_start(tmp_path: Path) -> None:
    settings = {
        "log.retention.check.interval.ms": "50",
        "log.segment.bytes": "400",
        "log.retention.bytes": "800",
    }
    with Broker(settings, data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t")
        for _ in range(20):
            produce(connection, "t", batch(b"x" * 200))
        start = eventually(lambda: fetch(connection, "t", {0: 20})[0].log_start_offset, "retention to run")
        assert start > 0
        assert fetch(connection, "t", {0: 0})[0].error_code == Code.OFFSET_OUT_OF_RANGE


def test_compaction_runs_by_itself(tmp_path: Path) -> None:
    from barnabas.wire.batch import Record, encode_batch, headers

    settings = {"log.cleaner.backoff.ms": "50", "log.segment.bytes": "400"}
    with Broker(settings, data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t", cleanup_policy="compact")
        for number in range(40):
            produce(connection, "t", encode_batch([Record(0, 1, b"key", b"%d" % number * 50, ())]))

        def is_compacted() -> bool:
            (row,) = fetch(connection, "t", {0: 0})
            return len(list(headers(row.records or b""))) < 10

        eventually(is_compacted, "the cleaner to compact")
        assert fetch(connection, "t", {0: 0})[0].high_watermark == 40


def test_flush_messages_forces_records_to_disk_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    real = os.fdatasync

    def noted(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        real(fd)

    def is_forced(topic: str) -> bool:
        """Of this topic alone: other brokers of this process have their own to force."""
        return any(file.stat().st_ino in synced for file in (tmp_path / f"{topic}-0").glob("*.log"))

    monkeypatch.setattr(os, "fdatasync", noted)
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "lazy")
        create(connection, "eager", flush_messages="1")
        produce(connection, "lazy", batch(b"x"))
        assert not is_forced("lazy")
        produce(connection, "eager", batch(b"x"))
        assert is_forced("eager")


def test_flush_ms_forces_records_to_disk_after_a_while(tmp_path: Path) -> None:
    with (
        Broker({"log.flush.scheduler.interval.ms": "20"}, data=tmp_path) as broker,
        connect(broker) as connection,
    ):
        create(connection, "t", flush_ms="1")
        produce(connection, "t", batch(b"x"))
        # Leader epochs are written down by a flush, and by nothing else while the broker runs.
        epochs = tmp_path / "t-0" / "leader-epoch-checkpoint"
        eventually(lambda: epochs.exists() and epochs.read_text().endswith("0 0\n"), "the flush")


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def test_metrics_are_served(tmp_path: Path) -> None:
    port = free_port()
    with Broker({"metrics.listen": f"127.0.0.1:{port}"}) as broker, connect(broker) as connection:
        create(connection, "t")
        produce(connection, "t", batch(b"x" * 100))
        produce(connection, "nowhere", batch(b"x"))
        connection.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        part = OffsetCommitPartition(0, committed_offset=0)
        connection.ask(OffsetCommitRequest("g", topics=[OffsetCommitTopic("t", [part])]), 9)
        text = scraped(port)
    assert 'kafka_network_request_seconds_count{request="Produce"} 2.0' in text
    assert 'error="UNKNOWN_TOPIC_OR_PARTITION",request="Produce"} 1.0' in text
    assert 'kafka_log_end_offset{partition="0",topic="t"} 1.0' in text
    assert "kafka_network_connections 1.0" in text
    assert 'kafka_coordinator_group_groups{state="empty",type="classic"} 1.0' in text
    assert 'kafka_consumergroup_current_offset{consumergroup="g",partition="0",topic="t"} 0.0' in text
    assert 'kafka_consumergroup_lag{consumergroup="g",partition="0",topic="t"} 1.0' in text
    received = next(line for line in text.splitlines() if line.startswith("kafka_network_bytes_in_total"))
    assert float(received.split()[1]) > 100


def test_metrics_tell_of_transactions_by_state() -> None:
    port = free_port()
    family = "kafka_coordinator_transaction_transactions"
    with Broker({"metrics.listen": f"127.0.0.1:{port}"}) as broker, connect(broker) as connection:
        create(connection, "t")
        assert f"{family}{{" not in scraped(port)
        with (
            Producer(broker.bootstrap, transactional_id="open") as first,
            Producer(broker.bootstrap, transactional_id="done") as second,
        ):
            with second.transaction():
                second.send("t", b"x")
            with first.transaction():
                first.send("t", b"x").result(60)
                eventually(
                    lambda: (
                        {f'{family}{{state="{state}"}} 1.0' for state in ("ongoing", "completecommit")}
                        <= set(scraped(port).splitlines())
                    ),
                    "one of each",
                )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_process_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    try:
        with RawConnection(broker.port) as connection:
            create(connection, "t")
            produce(connection, "t", batch(b"x"))
        os.kill(broker.pid, number)
        assert broker.wait() == 0
    finally:
        broker.close()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_events_can_be_logged_as_json(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", options=["--log-format", "json"])
    broker.start()
    try:
        with RawConnection(broker.port) as connection:
            create(connection, "t", 3)
        assert broker.stop() == 0
    finally:
        broker.close()
    events = [json.loads(line) for line in broker.output if line.startswith("{")]
    assert any(event["event"] == "created topic t with 3 partitions" for event in events)


def test_a_directory_that_fails_at_a_checkpoint_is_served_from_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = DataDirectory.write_checkpoint

    def write(self: DataDirectory, name: str, offsets: Any) -> None:
        if self.path.endswith("b"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        real(self, name, offsets)

    settings = {
        "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
        "log.flush.offset.checkpoint.interval.ms": "20",
    }
    with Broker(settings) as broker, connect(broker) as connection:
        create(connection, "t", 2)
        homes = {path.name: path.parent.name for path in tmp_path.glob("*/t-*")}
        (lost,) = (int(name[-1]) for name, home in homes.items() if home == "b")
        monkeypatch.setattr(DataDirectory, "write_checkpoint", write)

        def refused() -> bool:
            return bool(produce(connection, "t", batch(b"x"), lost).error_code == Code.KAFKA_STORAGE_ERROR)

        eventually(refused, "the partition to go with its directory")
        assert produce(connection, "t", batch(b"x"), 1 - lost).error_code == 0
        monkeypatch.setattr(DataDirectory, "write_checkpoint", real)
        with pytest.raises(BarnabasError, match="in use"):
            Broker({"log.dirs": f"{tmp_path}/b"}).start()


def test_a_broker_whose_last_directory_fails_at_a_checkpoint_halts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(self: DataDirectory, name: str, offsets: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    given, _ = broker_config(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path),
            "log.flush.offset.checkpoint.interval.ms": "20",
        }
    )

    def ready(broker: RunningBroker) -> None:
        monkeypatch.setattr(DataDirectory, "write_checkpoint", write)

    async def serve() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await _serve(given, ready)

    with pytest.raises(BarnabasError, match="No data directory works any more"):
        asyncio.run(serve())


def test_an_emptied_log_does_not_look_truncated_after_a_restart(tmp_path: Path) -> None:
    """A reader that knows an epoch from before would stop, and never read what comes."""
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t")
        for _ in range(5):
            produce(connection, "t", batch(b"x"))
        connection.ask(DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, -1)])]), 2)
    for restart in (1, 2):
        with Broker(data=tmp_path) as broker, connect(broker) as connection:
            for epoch, end in [
                *((epoch, (epoch, 5)) for epoch in range(restart + 1)),
                (restart + 1, (-1, -1)),
            ]:
                wanted = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, epoch)])
                answer = connection.ask(OffsetForLeaderEpochRequest(-1, [wanted]), 4)
                (row,) = answer.topics[0].partitions
                assert (row.leader_epoch, row.end_offset) == end


def test_a_running_broker_has_index_files_beside_its_log(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker("log.flush.offset.checkpoint.interval.ms=20", "log.index.interval.bytes=100")
    folder = broker.data / "t-0"

    def sizes() -> dict[str, int]:
        return {path.suffix: path.stat().st_size for path in folder.glob("0*")}

    with RawConnection(broker.port) as connection:
        create(connection, "t")
        assert sizes() == {".log": 0, ".index": 0, ".timeindex": 0}
        for _ in range(10):
            produce(connection, "t", batch(b"x" * 200))
        # The first entry is the second batch's.
        eventually(lambda: sizes()[".index"] == 9 * 8, "a checkpoint to write the index")
        # Written next: a look in between finds it empty.
        eventually(lambda: 12 <= sizes()[".timeindex"] <= 9 * 12, "the checkpoint to write the index of time")
    broker.kill()
    broker.start()
    with RawConnection(broker.port) as connection:
        assert produce(connection, "t", batch(b"y")).base_offset == 10


def _delete_records(connection: RawConnection, topic: str, offsets: dict[int, int]) -> list[tuple[int, int]]:
    wanted = [DeleteRecordsPartition(partition, offset) for partition, offset in offsets.items()]
    answer = connection.ask(DeleteRecordsRequest([DeleteRecordsTopic(topic, wanted)]), 2)
    return [(row.error_code, row.low_watermark) for row in answer.topics[0].partitions]


def test_deleted_records_do_not_come_back_after_kill_9(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    with RawConnection(broker.port) as connection:
        create(connection, "t", 3)
        for partition in (0, 1, 2):
            for _ in range(6):
                produce(connection, "t", batch(b"x"), partition)
        assert _delete_records(connection, "t", {0: 4, 1: -1}) == [(0, 4), (0, 6)]
        assert _delete_records(connection, "t", {0: 3, 2: 99}) == [(0, 4), (Code.OFFSET_OUT_OF_RANGE, -1)]
    broker.kill()
    broker.start()
    with RawConnection(broker.port) as connection:
        starts = [fetch(connection, "t", {partition: 6})[0].log_start_offset for partition in (0, 1, 2)]
    assert starts == [4, 6, 0]


def test_a_topic_made_again_does_not_start_where_the_old_one_was_deleted_to(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t")
        produce(connection, "t", batch(b"x"))
        assert _delete_records(connection, "t", {0: -1}) == [(0, 1)]
        deleted = connection.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
        assert deleted.responses[0].error_code == 0
        create(connection, "t")
        assert produce(connection, "t", batch(b"y")).base_offset == 0
        assert _delete_records(connection, "t", {0: 0}) == [(0, 0)]
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        assert b"y" in bytes(fetch(connection, "t", {0: 0})[0].records or b"")


def test_acks_zero_is_forced_to_disk_where_flush_messages_wants_it(tmp_path: Path) -> None:
    settings = {"log.flush.offset.checkpoint.interval.ms": "20"}
    with Broker(settings, data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t", flush_messages="1")
        connection.send(frame_of(produce_request("t", batch(b"quiet"), acks=0), 9))
        points = tmp_path / "recovery-point-offset-checkpoint"
        eventually(lambda: points.exists() and "t 0 1" in points.read_text(), "the recovery point to move")


def test_a_topic_made_on_a_full_disk_is_served_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: DataDirectory, *of: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    settings = {"log.flush.offset.checkpoint.interval.ms": "20"}
    with Broker(settings, data=tmp_path) as broker, connect(broker) as connection:
        with monkeypatch.context() as full:
            full.setattr(DataDirectory, "make_partition", fail)
            create(connection, "t", 2)
            assert produce(connection, "t", batch(b"x"), 1).error_code == Code.KAFKA_STORAGE_ERROR
        eventually(lambda: produce(connection, "t", batch(b"x"), 1).error_code == 0, "the partition")
        assert produce(connection, "t", batch(b"x"), 0).error_code == 0


def test_a_broker_whose_last_directory_fails_as_it_starts_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t")
    shutil.rmtree(tmp_path / "t-0")

    def fail(self: DataDirectory, *of: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(DataDirectory, "make_partition", fail)
    with pytest.raises(BarnabasError, match="No data directory works any more"):
        Broker(data=tmp_path).start()


class FailingDisk(RealDisk):
    """Has one folder whose files cannot be written any more, once `bad` names it."""

    bad = ""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        return FailingFile(self, file)


class FailingFile(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, disk: FailingDisk, file: RealFile) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        self._disk = disk

    def append(self, data: Buffer) -> None:
        if self._disk.bad and self.path.startswith(self._disk.bad):
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        super().append(data)


def test_a_topic_made_anew_while_a_directory_is_offline_is_served_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk()
    monkeypatch.setattr("barnabas.broker.broker.RealDisk", lambda: disk)
    settings = {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"}
    with Broker(settings) as broker, connect(broker) as connection:
        create(connection, "t", 2)
        for index in range(2):
            produce(connection, "t", batch(b"old"), index)
        (lost,) = [int(folder.name[2:]) for folder in (tmp_path / "b").glob("t-*")]
        disk.bad = f"{tmp_path}/b"
        assert produce(connection, "t", batch(b"old"), lost).error_code == Code.KAFKA_STORAGE_ERROR
        gone = connection.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
        assert gone.responses[0].error_code == 0
        create(connection, "t", 2)
        for index in range(2):
            assert produce(connection, "t", batch(b"new"), index).error_code == 0
    disk.bad = ""
    with Broker(settings) as broker, connect(broker) as connection:
        for index in range(2):
            (row,) = fetch(connection, "t", {index: 0})
            assert row.high_watermark == 1
            assert b"new" in bytes(row.records or b"")
