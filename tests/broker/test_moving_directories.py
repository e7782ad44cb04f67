"""Replicas that move between data directories of real brokers: written, read, killed, cancelled, short of room."""

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.broker.broker import Broker as RunningBroker
from barnabas.broker.partitions.moving import Pace
from barnabas.client.admin.configs import Resource
from barnabas.client.admin.topics import NewTopic
from barnabas.cluster.image import PartitionImage
from barnabas.config import BrokerConfig
from barnabas.disk import RealDisk, RealFile
from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.types import Buffer, Millis, TopicPartition
from barnabas.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.broker.memory_cluster import Members
from tests.broker.speaking import connect
from tests.deadline import Deadline, eventually
from tests.process import BrokerProcess

T0 = TopicPartition("t", 0)
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
VALUE = bytes(1000)
COUNT = 2000


class Directories:
    """Two folders of a broker, and what it says of them."""

    def __init__(self, folder: Path, *, number: int = 1) -> None:
        self.number = number
        self.a, self.b = folder / "a", folder / "b"

    @property
    def setting(self) -> str:
        return f"{self.a},{self.b}"

    def names(self) -> list[list[str]]:
        """The folders of t-0 in each of the two."""
        return [sorted(each.name for each in path.glob("t-0*")) for path in (self.a, self.b)]

    def home(self, admin: Admin) -> Path:
        (found,) = (
            Path(each.path)
            for each in admin.describe_log_dirs([self.number])
            for stored in each.partitions
            if stored.partition == T0 and not stored.is_future
        )
        return found

    def other(self, admin: Admin) -> Path:
        return self.b if self.home(admin) == self.a else self.a

    def is_moving(self, admin: Admin) -> bool:
        return any(
            stored.is_future for each in admin.describe_log_dirs([self.number]) for stored in each.partitions
        )

    def move(self, admin: Admin, path: Path) -> None:
        admin.alter_replica_log_dirs(self.number, {T0: str(path)})

    def wait_until_in(self, admin: Admin, path: Path) -> None:
        eventually(lambda: self.home(admin) == path, f"the replica to be in {path}")


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    return Directories(tmp_path)


@contextmanager
def running(directories: Directories, **settings: str) -> Iterator[tuple[Broker, Admin]]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    with (
        Broker({"log.dirs": directories.setting, **given}) as broker,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):
        yield broker, admin


def fill(bootstrap: str, count: int = COUNT, first: int = 0) -> None:
    with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        sent = [producer.send("t", b"%d:" % number + VALUE) for number in range(first, first + count)]
        for future in sent:
            future.result(60)


def numbers(bootstrap: str, count: int) -> list[int]:
    """The numbers of all records, as a consumer reads them from the beginning."""
    found: list[int] = []
    deadline = Deadline(60, f"{count} records")
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign({T0: 0})
        while len(found) < count:
            found += [
                int((record.value or b"").partition(b":")[0]) for record in consumer.poll(deadline.left(1.0))
            ]
    return found


@pytest.mark.parametrize("flush", ["1", str(2**63 - 1)], ids=["flushed", "not flushed"])
def test_a_partition_is_written_and_read_while_it_moves(directories: Directories, flush: str) -> None:
    with running(directories) as (broker, admin):
        admin.create_topics([NewTopic("t", 1, configs={"segment.bytes": "300000", "flush.messages": flush})])
        fill(broker.bootstrap)
        admin.alter_configs(Resource.broker(1), {RATE: "1000000"})
        done = threading.Event()
        written = [COUNT]

        def write() -> None:
            while not done.wait(0.01):
                fill(broker.bootstrap, 50, first=written[0])
                written[0] += 50

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(2):
                target = directories.other(admin)
                directories.move(admin, target)
                assert numbers(broker.bootstrap, COUNT)[:COUNT] == list(range(COUNT))
                admin.alter_configs(Resource.broker(1), {RATE: None})
                directories.wait_until_in(admin, target)
        finally:
            done.set()
            writer.join(60)
        assert not writer.is_alive()
        fill(broker.bootstrap, 1, first=written[0])
        assert numbers(broker.bootstrap, written[0] + 1) == list(range(written[0] + 1))
        eventually(lambda: sorted(map(len, directories.names())) == [0, 1], "the old folder to go")


def test_a_move_survives_kill_9_and_so_do_the_records(
    directories: Directories, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker(f"log.dirs={directories.setting}", f"{RATE}=500000")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("t", partitions=1)
        fill(broker.bootstrap)
        home, target = directories.home(admin), directories.other(admin)
        directories.move(admin, target)
        assert directories.is_moving(admin)
        eventually(lambda: list(target.glob("t-0.*-future/*.log")), "the copy to grow")
    broker.kill()
    broker.start()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert directories.home(admin) == home
        assert numbers(broker.bootstrap, COUNT) == list(range(COUNT))
        admin.alter_configs(Resource.broker(1), {RATE: None})
        directories.wait_until_in(admin, target)
        assert numbers(broker.bootstrap, COUNT) == list(range(COUNT))
    broker.kill()
    broker.start()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert directories.home(admin) == target
        assert numbers(broker.bootstrap, COUNT) == list(range(COUNT))


def test_a_move_is_shown_and_cancelled(directories: Directories) -> None:
    with running(directories) as (broker, admin):
        admin.create_topic("t", partitions=1)
        fill(broker.bootstrap)
        admin.alter_configs(Resource.broker(1), {RATE: "10000"})
        home, target = directories.home(admin), directories.other(admin)
        directories.move(admin, target)
        (moving,) = (
            stored
            for each in admin.describe_log_dirs()
            for stored in each.partitions
            if stored.is_future and Path(each.path) == target
        )
        assert moving.partition == T0
        assert 0 < moving.lag <= COUNT
        directories.move(admin, home)
        assert not directories.is_moving(admin)
        eventually(lambda: list(target.glob("t-0*")) == [], "the copy to go")
        assert numbers(broker.bootstrap, COUNT) == list(range(COUNT))


def test_a_deleted_topic_takes_its_copy_along(directories: Directories) -> None:
    with running(directories) as (broker, admin):
        admin.create_topic("t", partitions=1)
        fill(broker.bootstrap)
        admin.alter_configs(Resource.broker(1), {RATE: "10000"})
        directories.move(admin, directories.other(admin))
        admin.delete_topic("t")
        eventually(lambda: directories.names() == [[], []], "both folders to go")


def test_wishes_that_cannot_be_granted_get_kafkas_codes(directories: Directories) -> None:
    with running(directories) as (broker, admin), connect(broker) as connection:
        admin.create_topic("t", partitions=1)

        def ask(path: Path | str, topic: str, partition: int) -> int:
            wish = AlterReplicaLogDir(str(path), [AlterReplicaLogDirTopic(topic, [partition])])
            answer = connection.ask(AlterReplicaLogDirsRequest([wish]), 2)
            return int(answer.results[0].partitions[0].error_code)

        assert ask("/nowhere", "t", 0) == Code.LOG_DIR_NOT_FOUND
        assert ask(directories.b, "unknown", 0) == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert ask(directories.b, "x" * 249, 0) == Code.INVALID_TOPIC_EXCEPTION
        assert ask(directories.a, "t", 0) == Code.NONE
        # What is not there yet is made where it was wished.
        wished = directories.home(admin)
        for number in range(3):
            assert ask(wished, "later", number) == Code.UNKNOWN_TOPIC_OR_PARTITION
        admin.create_topic("later", partitions=3)
        assert len(list(wished.glob("later-*"))) == 3


class FullDisk(RealDisk):
    """A real disk of which one folder has no room, or fails, once it is told to."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.error = 0

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        return FullFile(file, self) if path.startswith(self._folder) else file


class FullFile(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, file: RealFile, disk: FullDisk) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        self._disk = disk

    def append(self, data: Buffer) -> None:
        if self._disk.error and len(data) > 1000:
            raise OSError(self._disk.error, os.strerror(self._disk.error), self.path)
        super().append(data)


class WithDisk(Broker):
    def __init__(self, disk: RealDisk, settings: dict[str, str]) -> None:
        super().__init__(settings)
        self._disk = disk

    def _made(self, config: BrokerConfig) -> RunningBroker:
        return RunningBroker(config, disk=self._disk)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_directory_that_is_full_or_fails_ends_the_move_and_nothing_else(
    directories: Directories, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk(directories.b)
    with (
        WithDisk(disk, {"log.dirs": directories.setting}) as broker,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):
        admin.create_topic("t", partitions=1)
        fill(broker.bootstrap)
        assert directories.home(admin) == directories.a
        disk.error = error
        with caplog.at_level(logging.ERROR):
            directories.move(admin, directories.b)
            eventually(lambda: not directories.is_moving(admin), "the move to end")
        told = [each.getMessage() for each in caplog.records if "is not moved to" in each.getMessage()]
        assert len(told) == 1
        assert directories.home(admin) == directories.a
        fill(broker.bootstrap, 100, first=COUNT)
        assert numbers(broker.bootstrap, COUNT + 100) == list(range(COUNT + 100))
        if error == errno.ENOSPC:
            disk.error = 0
            directories.move(admin, directories.b)
            directories.wait_until_in(admin, directories.b)
            assert numbers(broker.bootstrap, COUNT + 100) == list(range(COUNT + 100))


def state(members: Members) -> PartitionImage:
    return members.cluster.image.topics["t"].partitions[0]


@pytest.mark.parametrize("moved", [1, 2], ids=["the leader", "a follower"])
def test_replicas_move_on_each_broker_by_themselves(tmp_path: Path, moved: int) -> None:
    settings = {
        "log.dirs": "{data}/a,{data}/b",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
    }
    with Members(tmp_path, settings=settings) as members, Admin(bootstrap_servers=members.bootstrap) as admin:
        admin.create_topics([NewTopic("t", assignment={0: [1, 2, 3]})])
        fill(members.bootstrap, 500)
        directories = Directories(tmp_path / f"broker-{moved}", number=moved)
        target = directories.other(admin)
        directories.move(admin, target)
        fill(members.bootstrap, 500, first=500)
        directories.wait_until_in(admin, target)
        fill(members.bootstrap, 500, first=1000)
        assert numbers(members.bootstrap, 1500) == list(range(1500))
        # What was copied leads as well as any other.
        eventually(lambda: set(state(members).isr) == {1, 2, 3}, "all to be in sync")
        members[3 - moved].stop()
        eventually(lambda: state(members).leader in (moved, 3), "a leader")
        assert numbers(members[moved].bootstrap, 1500) == list(range(1500))


def test_bytes_are_copied_no_faster_than_told() -> None:
    pace = Pace()
    assert pace.wait_ms(1000, Millis(10_000)) == 0
    pace.spend(500)
    assert pace.wait_ms(1000, Millis(10_000)) == 500
    pace.spend(500)
    assert pace.wait_ms(1000, Millis(10_100)) == 900
    assert pace.wait_ms(9000, Millis(10_100)) == 100, "another rate counts at once"
    assert pace.wait_ms(1000, Millis(20_000)) == 0
    pace.spend(1000)
    assert pace.wait_ms(1000, Millis(20_000)) == 1000, "what was not used is not saved up"
