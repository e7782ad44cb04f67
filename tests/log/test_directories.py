"""Several data directories: who may use them, where partitions go, what happens when one fails."""

# mypy: disable-error-code="arg-type,dict-item,assignment"
# Offsets and times are plain numbers in here.

import errno
import logging
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.config import TopicConfig
from barnabas.disk import RealDisk, read_whole, write_atomically
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.log.directories import Directories
from barnabas.log.log import Log
from barnabas.testing.disk import PowerCut, SimulatedDisk, SimulatedFile, Survival
from barnabas.types import Millis, TopicPartition, short_id
from barnabas.wire.batch import Record, decode_batch, encode_batch

NOW = 1_700_000_000_000
TOPIC, OTHER = UUID(int=7), UUID(int=8)
CONFIG = TopicConfig()


class FixedClock:
    def now(self) -> Millis:
        return Millis(NOW)


def open_all(
    disk: SimulatedDisk | RealDisk, *paths: str, node_id: int = 1, cluster_id: str | None = None
) -> Directories:
    return Directories.open(
        disk, paths or ("/a",), node_id=node_id, clock=FixedClock(), cluster_id=cluster_id
    )


def tp(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def append(log: Log, value: bytes = b"v") -> None:
    batch = encode_batch([Record(0, NOW, None, value)])
    log.append(memoryview(bytearray(batch)), epoch=0, now=NOW)


def values(log: Log) -> list[bytes | None]:
    out: list[bytes | None] = []
    offset = log.start
    while (found := log.read(offset, 1 << 20, log.end)) is not None:
        data = found.read()
        at = 0
        while at < len(data):
            records = decode_batch(data[at:][: int.from_bytes(data[at + 8 : at + 12], "big") + 12])
            out += [record.value for record in records if record.offset >= log.start]
            at += int.from_bytes(data[at + 8 : at + 12], "big") + 12
            offset = records[-1].offset + 1
    return out


def test_a_partition_goes_where_the_fewest_are() -> None:
    directories = open_all(SimulatedDisk(), "/a", "/b", "/c")
    for number in range(7):
        directories.create(tp(number), CONFIG, TOPIC)
    assert sorted(len(usage.partitions) for usage in directories.usage()) == [2, 2, 3]


def test_records_are_there_after_a_clean_stop() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk, "/a", "/b")
    for number in range(4):
        append(directories.create(tp(number), CONFIG, TOPIC), b"%d" % number)
    directories.close({tp(2): 1})
    again = open_all(disk, "/a", "/b")
    assert {name: values(log) for name, log in again.logs.items()} == {tp(n): [b"%d" % n] for n in range(4)}
    assert again.high_watermarks == {tp(2): 1}
    assert again.topic_id(tp(3)) == TOPIC


def test_a_clean_stop_is_marked_and_the_mark_is_used_once() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk)
    assert not disk.exists("/a/.kafka_cleanshutdown")
    directories.close()
    assert disk.exists("/a/.kafka_cleanshutdown")
    open_all(disk)
    assert not disk.exists("/a/.kafka_cleanshutdown")


def test_the_files_are_kafkas() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk, cluster_id="Mk8x3vBqTbmDqqjTlTj8uA")
    log = directories.create(tp(0, "orders"), CONFIG, TOPIC)
    append(log)
    append(log)
    log.advance_start(1)
    directories.cleaned[tp(0, "orders")] = 1
    directories.close({tp(0, "orders"): 2})
    lines = read_whole(disk, "/a/meta.properties").decode().splitlines()
    assert lines[:3] == ["version=1", "node.id=1", "cluster.id=Mk8x3vBqTbmDqqjTlTj8uA"]
    assert len(lines[3].removeprefix("directory.id=")) == 22
    assert (
        read_whole(disk, "/a/orders-0/partition.metadata")
        == f"version: 0\ntopic_id: {short_id(TOPIC)}".encode()
    )
    for name, offset in (("recovery-point", 2), ("log-start", 1), ("replication", 2), ("cleaner", 1)):
        text = read_whole(disk, f"/a/{name}-offset-checkpoint")
        assert text == f"0\n1\norders 0 {offset}\n".encode()


def test_a_second_broker_is_kept_out_with_a_sentence() -> None:
    disk = SimulatedDisk()
    open_all(disk)
    with pytest.raises(BarnabasError, match="/a is in use by another broker"):
        open_all(disk)


def test_a_real_lock_keeps_a_second_broker_out_until_the_first_is_gone(tmp_path: Path) -> None:
    first = open_all(RealDisk(), str(tmp_path))
    with pytest.raises(BarnabasError, match="in use"):
        open_all(RealDisk(), str(tmp_path))
    first.close()
    open_all(RealDisk(), str(tmp_path)).close()


def test_a_failed_start_lets_go_of_what_it_had() -> None:
    disk = SimulatedDisk()
    open_all(disk, "/b").close()
    with pytest.raises(BarnabasError, match="belongs to broker 1"):
        open_all(disk, "/a", "/b", node_id=2)
    assert not disk.locked


def test_another_brokers_directory_is_refused() -> None:
    disk = SimulatedDisk()
    open_all(disk).close()
    with pytest.raises(BarnabasError, match=r"start it with broker\.id=1"):
        open_all(disk, node_id=2)


def test_another_clusters_directory_is_refused() -> None:
    disk = SimulatedDisk()
    open_all(disk, "/a", cluster_id="one").close()
    open_all(disk, "/b", cluster_id="two").close()
    with pytest.raises(BarnabasError, match="belongs to cluster two"):
        open_all(disk, "/a", "/b")


def test_a_cluster_keeps_its_id_and_a_new_directory_gets_it() -> None:
    disk = SimulatedDisk()
    first = open_all(disk, "/a")
    first.close()
    both = open_all(disk, "/a", "/b")
    assert both.cluster_id == first.cluster_id
    both.close()
    assert open_all(disk, "/b").cluster_id == first.cluster_id


def test_the_meta_properties_of_older_kafkas_are_read() -> None:
    disk = SimulatedDisk()
    disk.make_dir("/a")
    write_atomically(disk, "/a/meta.properties", b"#\n#Mon\nversion=0\nbroker.id=4\ncluster.id=x=y\n")
    assert open_all(disk, node_id=4).cluster_id == "x=y"


def test_meta_properties_that_say_nothing_are_a_matter_for_a_person() -> None:
    disk = SimulatedDisk()
    disk.make_dir("/a")
    write_atomically(disk, "/a/meta.properties", b"hello\n")
    with pytest.raises(BarnabasError, match=r"/a/meta.properties cannot be read"):
        open_all(disk)


def test_a_directory_named_twice_is_refused() -> None:
    with pytest.raises(BarnabasError, match="twice"):
        open_all(SimulatedDisk(), "/a", "/b/../a")


def test_a_deleted_partition_is_gone() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk)
    append(directories.create(tp(0), CONFIG, TOPIC))
    directories.create(tp(1), CONFIG, TOPIC)
    directories.delete(tp(0))
    assert directories.find(tp(0)) is None
    assert [name for name in disk.list("/a") if name.startswith("t-")] == ["t-1"]


def test_a_topic_made_anew_begins_empty_with_nothing_of_the_old_ones_checkpoints() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk)
    log = directories.create(tp(0), CONFIG, TOPIC)
    for _ in range(5):
        append(log)
    log.advance_start(3)
    directories.cleaned[tp(0)] = 3
    directories.checkpoint({tp(0): 5})
    directories.delete(tp(0))
    append(directories.create(tp(0), CONFIG, UUID(int=8)), b"new")
    again = open_all(disk.crash(Survival.EVERYTHING))
    assert values(again.logs[tp(0)]) == [b"new"]
    assert again.cleaned == {}
    assert again.high_watermarks == {}


def test_what_a_crash_left_of_a_deletion_goes_at_the_next_start() -> None:
    disk = SimulatedDisk()
    open_all(disk).close()
    disk.make_dir("/a/t-0.0123456789abcdef0123456789abcdef-delete")
    disk.open("/a/t-0.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log", create=True)
    directories = open_all(disk)
    assert directories.logs == {}
    assert [name for name in disk.list("/a") if name.endswith("-delete")] == []


def test_a_deleted_partition_with_the_longest_name_has_a_name_that_fits() -> None:
    class Names(SimulatedDisk):
        def rename(self, source: str, target: str) -> None:
            assert len(os.path.basename(target)) <= 255
            super().rename(source, target)

    directories = open_all(Names())
    name = TopicPartition("x" * 249, 99999)
    directories.create(name, CONFIG, TOPIC)
    directories.delete(name)


def test_partitions_that_the_cluster_does_not_know_are_set_aside_not_deleted() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk)
    for number in range(3):
        append(directories.create(tp(number), CONFIG, UUID(int=number)))
    strays = directories.set_aside_strays({tp(0): UUID(int=0), tp(1): UUID(int=99)})
    assert strays == [tp(1), tp(2)]
    assert list(directories.logs) == [tp(0)]
    aside = [name for name in disk.list("/a") if name.endswith("-stray")]
    assert len(aside) == 2
    directories.close()
    assert list(open_all(disk).logs) == [tp(0)]


def test_what_is_no_partition_is_left_alone() -> None:
    disk = SimulatedDisk()
    for name in ("lost+found", "t", "t-", "t-01", "-1", "t-1-future", "t-x"):
        disk.make_dir(f"/a/{name}")
    assert open_all(disk).logs == {}


def test_a_partition_in_two_directories_is_a_matter_for_a_person() -> None:
    disk = SimulatedDisk()
    for path in ("/a", "/b"):
        directories = open_all(disk, path, cluster_id="c")
        append(directories.create(tp(0), CONFIG, TOPIC))
        directories.close()
    before = {path: read_whole(disk, f"{path}/recovery-point-offset-checkpoint") for path in ("/a", "/b")}
    both = open_all(disk, "/a", "/b")
    with pytest.raises(BarnabasError, match="t-0 is in /a and in /b"):
        both.set_aside_strays({tp(0): TOPIC})
    both.close()
    assert not disk.locked
    assert {path: read_whole(disk, f"{path}/recovery-point-offset-checkpoint") for path in before} == before
    assert [disk.exists(f"{path}/t-0") for path in before] == [True, True]


@pytest.mark.parametrize("wanted", [TOPIC, OTHER], ids=["the first", "the second"])
def test_of_two_folders_of_a_partition_the_one_of_the_topic_counts(wanted: UUID) -> None:
    disk = SimulatedDisk()
    for path, topic, value in (("/a", TOPIC, b"first"), ("/b", OTHER, b"second")):
        directories = open_all(disk, path, cluster_id="c")
        append(directories.create(tp(0), CONFIG, topic), value)
        directories.close({tp(0): 1})
    both = open_all(disk, "/a", "/b")
    both.set_aside_strays({tp(0): wanted})
    kept, other = ("/a", "/b") if wanted == TOPIC else ("/b", "/a")
    assert values(both.logs[tp(0)]) == [b"first" if wanted == TOPIC else b"second"]
    assert both.high_watermarks == {tp(0): 1}
    assert disk.exists(f"{kept}/t-0")
    assert not disk.exists(f"{other}/t-0")
    assert [name for name in disk.list(other) if name.endswith("-stray")]
    both.close()
    assert values(open_all(disk, "/a", "/b").logs[tp(0)]) == [b"first" if wanted == TOPIC else b"second"]


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4, 5, 6, 7])
def test_a_directory_that_fails_while_a_partition_is_made_needs_no_help_at_the_next_start(kept: int) -> None:
    disk = SimulatedDisk()
    directories = open_all(disk, "/a", "/b")
    disk.fail_at = disk.operations + 1 + kept
    append(directories.create(tp(0), CONFIG, TOPIC), b"kept")
    for log in directories.logs.values():
        log.close()
    disk.locked.clear()
    again = open_all(disk, "/a", "/b")
    again.set_aside_strays({tp(0): TOPIC})
    assert values(again.logs[tp(0)]) == [b"kept"]


def test_a_topic_made_anew_while_a_directory_is_offline_is_served_and_its_old_records_never() -> None:
    disk = PartlyBroken()
    directories = open_all(disk, "/a", "/b")
    for number in range(2):
        append(directories.create(tp(number), CONFIG, TOPIC), b"old")
    lost = next(name for name, log in directories.logs.items() if log.directory.startswith("/b"))
    directories.offline("/b", OSError(errno.EIO, "gone"))
    for number in range(2):
        directories.delete(tp(number))
        append(directories.create(tp(number), CONFIG, OTHER, new=True), b"new")
    assert directories.logs[lost].directory.startswith("/a")
    directories.close()
    again = open_all(disk, "/a", "/b")
    assert again.set_aside_strays(dict.fromkeys((tp(0), tp(1)), OTHER)) == []
    assert [values(again.logs[tp(number)]) for number in range(2)] == [[b"new"], [b"new"]]


# Which topic a folder is of


@pytest.mark.parametrize("survival", [Survival.NOTHING, Survival.PREFIX, Survival.SECTORS])
@pytest.mark.parametrize("seed", range(5))
def test_a_folder_says_which_topic_it_is_of_before_it_has_records(survival: Survival, seed: int) -> None:
    disk = SimulatedDisk()
    directories = open_all(disk)
    log = directories.create(tp(0), CONFIG, TOPIC)
    append(log, b"old")
    again = open_all(disk.crash(survival, seed))
    assert again.topic_id(tp(0)) == TOPIC
    assert again.set_aside_strays({tp(0): OTHER}) == [tp(0)]


def test_a_power_cut_while_a_partition_is_made_leaves_it_made_or_not() -> None:
    steps = SimulatedDisk()
    open_all(steps).create(tp(0), CONFIG, TOPIC)
    for stop_at in range(1, steps.operations + 1):
        for survival in Survival:
            disk = SimulatedDisk()
            disk.stop_at = stop_at
            with suppress(PowerCut):
                open_all(disk).create(tp(0), CONFIG, TOPIC)
            after = disk.crash(survival, stop_at)
            directories = open_all(after)
            directories.set_aside_strays({tp(0): TOPIC})
            log = directories.find(tp(0)) or directories.create(tp(0), CONFIG, TOPIC)
            append(log)
            assert open_all(after.crash()).topic_id(tp(0)) == TOPIC
            assert not [name for name in after.list("/a") if name.endswith("-stray")]


@pytest.mark.parametrize("text", [None, b"", b"version: 0\n", b"version: 0\ntopic_id: nonsense\n"])
def test_records_of_a_folder_that_names_no_topic_are_set_aside_with_a_sentence(
    text: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    directories = open_all(disk)
    append(directories.create(tp(0), CONFIG, TOPIC), b"old")
    directories.close()
    if text is None:
        disk.remove("/a/t-0/partition.metadata")
    else:
        write_atomically(disk, "/a/t-0/partition.metadata", text)
    again = open_all(disk)
    with caplog.at_level(logging.WARNING):
        assert again.set_aside_strays({tp(0): OTHER}) == [tp(0)]
    (aside,) = [name for name in disk.list("/a") if name.endswith("-stray")]
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"set aside as {aside}" in line
    assert f"'topic_id: {short_id(OTHER)}'" in line
    # As the sentence says:
    again.close()
    disk.rename(f"/a/{aside}", "/a/t-0")
    write_atomically(disk, "/a/t-0/partition.metadata", f"version: 0\ntopic_id: {short_id(OTHER)}\n".encode())
    back = open_all(disk)
    assert back.set_aside_strays({tp(0): OTHER}) == []
    assert values(back.logs[tp(0)]) == [b"old"]


class PartlyBroken(SimulatedDisk):
    """A machine with one disk that fails, or is full."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: dict[str, int] = {}

    def operate(self, what: str, path: str, size: int = 0) -> None:
        self._refuse(path)
        super().operate(what, path, size)

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self._refuse(path)
        return super().open(path, create=create)

    def list(self, path: str) -> list[str]:
        self._refuse(path)
        return super().list(path)

    def _refuse(self, path: str) -> None:
        for prefix, number in self.bad.items():
            if path.startswith(prefix):
                raise OSError(number, os.strerror(number), path)


def refused(log: Log) -> Refused:
    with pytest.raises(Refused) as caught:
        append(log)
    assert caught.value.code is Code.KAFKA_STORAGE_ERROR
    return caught.value


def test_a_failing_directory_goes_offline_with_its_partitions_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = PartlyBroken()
    directories = open_all(disk, "/a", "/b")
    logs = [directories.create(tp(number), CONFIG, TOPIC) for number in range(4)]
    disk.bad["/b"] = errno.EIO
    broken = next(log for log in logs if log.directory.startswith("/b"))
    number = logs.index(broken)
    with caplog.at_level(logging.ERROR):
        assert directories.failed(tp(number), refused(broken)) is True
    assert "The data directory /b is offline with 2 partitions" in caplog.text
    assert directories.find(tp(number)) is None
    assert directories.offline_count == 1
    assert {
        name for name in directories.logs if not directories.logs[name].directory.startswith("/a")
    } == set()
    for log in directories.logs.values():
        append(log)
    usage = {each.path: each for each in directories.usage()}
    assert usage["/b"].error is Code.KAFKA_STORAGE_ERROR
    assert len(usage["/a"].partitions) == 2
    directories.checkpoint()
    assert directories.create(tp(9), CONFIG, TOPIC).directory == "/a/t-9"
    directories.close()


class FailingToSync(SimulatedDisk):
    """No fsync below /b succeeds any more once there is an error for it."""

    def operate(self, what: str, path: str, size: int = 0) -> None:
        super().operate(what, path, size)
        if self.error != errno.EDOM and what.startswith("sync") and path.startswith("/b"):
            raise OSError(self.error, os.strerror(self.error), path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EIO])
@pytest.mark.parametrize("what", ["flush", "checkpoint", "create", "delete"])
def test_a_failed_fsync_takes_its_directory_offline_whatever_its_number(number: int, what: str) -> None:
    disk = FailingToSync()
    disk.error = errno.EDOM
    directories = open_all(disk, "/a", "/b")
    for each in range(2):
        append(directories.create(tp(each), CONFIG, TOPIC))
    there = next(name for name, log in directories.logs.items() if log.directory.startswith("/b"))
    append(directories.create(tp(2), CONFIG, TOPIC))
    disk.error = number
    match what:
        case "flush":
            with pytest.raises(Refused) as failed:
                directories.logs[there].flush()
            assert directories.failed(there, failed.value) is True
        case "checkpoint":
            directories.checkpoint()
        case "create":
            assert directories.create(tp(3), CONFIG, TOPIC).directory == "/a/t-3"
        case "delete":
            directories.delete(there)
    assert [each.path for each in directories.online()] == ["/a"]


def test_an_empty_log_never_stands_in_for_one_that_is_offline() -> None:
    disk = PartlyBroken()
    directories = open_all(disk, "/a", "/b")
    for number in range(2):
        append(directories.create(tp(number), CONFIG, TOPIC))
    lost = next(name for name, log in directories.logs.items() if log.directory.startswith("/b"))
    directories.offline("/b", OSError(errno.EIO, "gone"))
    with pytest.raises(Refused) as caught:
        directories.create(lost, CONFIG, TOPIC)
    assert caught.value.code is Code.KAFKA_STORAGE_ERROR
    directories.close()
    disk.bad["/b"] = errno.EIO
    again = open_all(disk, "/a", "/b")
    with pytest.raises(Refused):
        again.create(lost, CONFIG, TOPIC)
    again.create(tp(5), CONFIG, TOPIC, new=True)


def test_a_directory_that_does_not_open_is_offline_from_the_start() -> None:
    disk = PartlyBroken()
    disk.bad["/b"] = errno.EACCES
    directories = open_all(disk, "/a", "/b")
    assert [directory.path for directory in directories.online()] == ["/a"]
    directories.create(tp(0), CONFIG, TOPIC, new=True)


def test_a_partition_that_cannot_be_read_takes_its_directory_offline() -> None:
    disk = PartlyBroken()
    directories = open_all(disk, "/a", "/b")
    for number in range(4):
        append(directories.create(tp(number), CONFIG, TOPIC))
    directories.close()
    disk.bad["/a/t-0"] = errno.EIO
    again = open_all(disk, "/a", "/b")
    assert {log.directory[:2] for log in again.logs.values()} == {"/b"}


def test_when_no_directory_works_there_is_no_broker() -> None:
    disk = PartlyBroken()
    disk.bad["/"] = errno.EIO
    with pytest.raises(BarnabasError, match="No data directory works"):
        open_all(disk, "/a", "/b")


def test_each_directory_that_fails_is_reported() -> None:
    directories = open_all(SimulatedDisk(), "/a", "/b")
    left: list[int] = []
    directories.on_offline = lambda: left.append(len(directories.online()))
    directories.offline("/a", OSError(errno.EIO, "gone"))
    directories.offline("/b", OSError(errno.EIO, "gone"))
    directories.offline("/b", OSError(errno.EIO, "gone"))
    assert left == [1, 0]
    assert "No data directory works any more; the last was /b" in str(directories.none_left())
    with pytest.raises(Refused):
        directories.create(tp(0), CONFIG, TOPIC, new=True)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_a_full_disk_takes_nothing_offline_and_writes_go_on_once_there_is_room(number: int) -> None:
    disk = PartlyBroken()
    directories = open_all(disk)
    log = directories.create(tp(0), CONFIG, TOPIC)
    append(log, b"before")
    disk.bad["/a"] = number
    assert directories.failed(tp(0), OSError(number, "full")) is False
    if number != errno.EMFILE:
        assert directories.failed(tp(0), refused(log)) is False
    directories.checkpoint({tp(0): 1})
    with pytest.raises(Refused):
        directories.create(tp(1), CONFIG, TOPIC)
    disk.bad.clear()
    append(log, b"after")
    assert values(log) == [b"before", b"after"]
    directories.create(tp(1), CONFIG, TOPIC)
    directories.close()
    assert sorted(open_all(disk).logs) == [tp(0), tp(1)]


def test_a_stop_on_a_full_disk_is_not_called_clean() -> None:
    disk = PartlyBroken()
    directories = open_all(disk)
    append(directories.create(tp(0), CONFIG, TOPIC))
    disk.bad["/a"] = errno.ENOSPC
    directories.close()
    disk.bad.clear()
    assert not disk.exists("/a/.kafka_cleanshutdown")
    assert values(open_all(disk).logs[tp(0)]) == [b"v"]


def test_a_start_on_a_full_disk_serves_what_there_is() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk)
    log = directories.create(tp(0), replace(CONFIG, segment_bytes=1000, index_interval_bytes=100), TOPIC)
    for number in range(60):
        append(log, b"%d" % number)
    disk.capacity = disk.used()
    refused(log)
    after = disk.crash(Survival.EVERYTHING)
    after.capacity = after.used()
    again = open_all(after)
    assert values(again.logs[tp(0)]) == [b"%d" % number for number in range(60)]
    after.capacity = None
    append(again.logs[tp(0)])


def test_room_and_sizes_are_told(tmp_path: Path) -> None:
    directories = open_all(RealDisk(), str(tmp_path))
    log = directories.create(tp(0), CONFIG, TOPIC)
    append(log)
    (usage,) = directories.usage()
    assert usage.partitions == {tp(0): log.size}
    assert 0 < usage.usable <= usage.total
    directories.close()


def test_a_checkpoint_that_says_the_same_is_not_written_again() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk)
    append(directories.create(tp(0), CONFIG, TOPIC))
    directories.checkpoint({tp(0): 1})
    before = disk.operations
    directories.checkpoint({tp(0): 1})
    assert disk.operations == before


def test_a_checkpoint_that_cannot_be_believed_costs_time_not_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    directories = open_all(disk)
    append(directories.create(tp(0), CONFIG, TOPIC))
    directories.close()
    write_atomically(disk, "/a/recovery-point-offset-checkpoint", b"0\n9\nrubbish\n")
    again = open_all(disk)
    assert "recovery-point-offset-checkpoint is not used" in caplog.text
    assert values(again.logs[tp(0)]) == [b"v"]


def script(directories: Directories, kept: list[bytes], flushed: list[int]) -> None:
    """What the power goes off in: topics come and go, records are written and flushed."""
    log = directories.create(tp(0), CONFIG, TOPIC)
    for number in range(3):
        append(log, b"%d" % number)
        kept.append(b"%d" % number)
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.finish_flush(flush)
    flushed.append(3)
    directories.create(tp(0, "u"), CONFIG, TOPIC)
    append(directories.logs[tp(0, "u")])
    directories.checkpoint({tp(0): 3})
    directories.delete(tp(0, "u"))
    directories.create(tp(0, "u"), CONFIG, UUID(int=9))
    append(log, b"3")
    kept.append(b"3")
    directories.close({tp(0): 4})
    flushed[:] = [4]


@pytest.mark.parametrize("survival", list(Survival))
def test_a_power_cut_at_any_moment_loses_nothing_that_was_flushed(survival: Survival) -> None:
    whole = SimulatedDisk()
    script(open_all(whole, "/a", "/b"), [], [])
    for stop_at in range(1, whole.operations + 1):
        disk = SimulatedDisk()
        disk.stop_at = stop_at
        kept: list[bytes] = []
        flushed: list[int] = []
        with pytest.raises(PowerCut):
            script(open_all(disk, "/a", "/b"), kept, flushed)
        again = open_all(disk.crash(survival, stop_at), "/a", "/b")
        if flushed or tp(0) in again.logs:
            found = values(again.logs[tp(0)])
            assert found == [b"0", b"1", b"2", b"3"][: len(found)]
            assert len(found) >= (flushed or [0])[-1]
        for log in again.logs.values():
            append(log)
        again.close()


def test_opening_a_thousand_partitions_takes_less_than_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Making them would wait some thousand times for the disk, which is not what is measured.
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    paths = str(tmp_path / "a"), str(tmp_path / "b")
    directories = open_all(RealDisk(), *paths)
    for number in range(1000):
        append(directories.create(tp(number), CONFIG, TOPIC))
    directories.close()
    begun = time.process_time()
    again = open_all(RealDisk(), *paths)
    spent = time.process_time() - begun
    assert len(again.logs) == 1000
    again.close()
    assert spent < 1.0


def test_a_directory_that_fails_at_a_checkpoint_is_told_of_and_stays_locked() -> None:
    disk = PartlyBroken()
    directories = open_all(disk, "/a", "/b")
    for number in range(2):
        append(directories.create(tp(number), CONFIG, TOPIC))
    told: list[int] = []
    directories.on_offline = lambda: told.append(len(directories.logs))
    disk.bad["/b/"] = errno.EACCES
    directories.checkpoint()
    assert told == [1]
    disk.bad.clear()
    with pytest.raises(BarnabasError, match="in use by another broker"):
        open_all(disk, "/b")


def test_what_is_no_partition_of_ours_is_left_alone() -> None:
    disk = SimulatedDisk()
    open_all(disk).close()
    disk.make_dir("/a/my-delete")
    disk.open("/a/my-delete/precious", create=True)
    disk.open("/a/backup-1", create=True)
    directories = open_all(disk)
    assert directories.logs == {}
    assert disk.list("/a/my-delete") == ["precious"]
    assert disk.exists("/a/backup-1")


def test_too_many_open_files_are_no_broken_disk() -> None:
    disk = PartlyBroken()
    directories = open_all(disk)
    append(directories.create(tp(0), CONFIG, TOPIC))
    directories.close()
    disk.bad["/a/t-0/"] = errno.EMFILE
    with pytest.raises(BarnabasError, match="ulimit -n"):
        open_all(disk)
    disk.bad.clear()
    assert values(open_all(disk).logs[tp(0)])


def test_a_folder_that_could_not_be_removed_is_not_taken_for_the_next_topic_of_its_name() -> None:
    disk = PartlyBroken()
    directories = open_all(disk)
    append(directories.create(tp(0), CONFIG, TOPIC), b"deleted")
    disk.bad["/a/t-0"] = errno.ENOSPC
    directories.delete(tp(0))
    disk.bad.clear()
    assert disk.exists("/a/t-0")
    append(directories.create(tp(0), CONFIG, UUID(int=8), new=True), b"new")
    assert values(directories.logs[tp(0)]) == [b"new"]
    directories.close()
    assert values(open_all(disk).logs[tp(0)]) == [b"new"]


def test_what_is_no_file_of_ours_in_a_deleted_partition_is_left_there() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk)
    directories.create(tp(0), CONFIG, TOPIC)
    disk.make_dir("/a/t-0/notes")
    directories.delete(tp(0))
    assert directories.online()
    directories.close()
    again = open_all(disk)
    assert again.online()
    assert again.logs == {}


def test_a_recovery_point_above_the_end_of_its_log_stays_and_the_log_goes_on_there() -> None:
    """What is appended behind it is not flushed yet: torn, it goes, and the recovery point still stands."""
    disk = SimulatedDisk()
    directories = open_all(disk)
    log = directories.create(tp(0), CONFIG, TOPIC)
    for number in range(5):
        append(log, b"%d" % number)
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.finish_flush(flush)
    directories.checkpoint()
    path, size = log.segments[0].path, log.size
    crashed = disk.crash()
    crashed.open(path).truncate(size // 5 * 3)
    lost = open_all(crashed)
    assert lost.logs[tp(0)].end == 5
    assert b"t 0 5\n" in read_whole(crashed, "/a/recovery-point-offset-checkpoint")
    append(lost.logs[tp(0)], b"behind")
    active = lost.logs[tp(0)].segments[-1].path
    torn = crashed.crash(Survival.EVERYTHING)
    torn.open(active).truncate(50)
    again = open_all(torn)
    assert values(again.logs[tp(0)]) == [b"0", b"1", b"2"]
    assert again.logs[tp(0)].end == 5


def test_a_killed_broker_has_all_it_wrote_and_one_without_power_may_not() -> None:
    disk = SimulatedDisk()
    assert open_all(disk, "/a").begin_life()  # nothing was there to be lost
    disk.locked.clear()
    assert open_all(disk, "/a").begin_life()
    assert not open_all(disk.crash(), "/a").begin_life()


@pytest.mark.parametrize("stops_cleanly", [True, False])
def test_a_power_cut_stays_known_until_the_cluster_has_heard_of_it(stops_cleanly: bool) -> None:
    disk = SimulatedDisk()
    open_all(disk, "/a").begin_life()
    disk = disk.crash()
    for _ in range(2):
        told = open_all(disk, "/a")
        assert not told.begin_life()
        if stops_cleanly:
            told.close()
        disk.locked.clear()
    told = open_all(disk, "/a")
    told.begin_life()
    told.forgive()
    disk.locked.clear()
    assert open_all(disk, "/a").begin_life()


def test_a_clean_stop_outlasts_a_power_cut() -> None:
    disk = SimulatedDisk()
    stopped = open_all(disk, "/a")
    stopped.begin_life()
    stopped.close()
    assert open_all(disk.crash(), "/a").begin_life()


def test_a_folder_that_does_not_say_when_it_was_used_may_have_lost_something() -> None:
    disk = SimulatedDisk()
    open_all(disk, "/a")
    disk.locked.clear()
    assert not open_all(disk, "/a").begin_life()


def test_folders_that_were_made_beforehand_are_used() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk, "/a", "/b")
    topic_id = UUID(int=7)
    for make in directories.begin_making([(tp(number), topic_id) for number in range(4)]):
        make()
    made = disk.operations
    logs = [directories.create(tp(number), TopicConfig(), topic_id) for number in range(4)]
    assert {log.directory for log in logs} == {"/a/t-0", "/b/t-1", "/a/t-2", "/b/t-3"}
    assert not any(what.startswith("sync") for what, _ in disk.history[made:])
    assert all(directories.topic_id(tp(number)) == topic_id for number in range(4))


def test_a_folder_made_for_another_topic_of_the_name_is_not_used() -> None:
    directories = open_all(SimulatedDisk(), "/a")
    for make in directories.begin_making([(tp(0), UUID(int=1))]):
        make()
    directories.create(tp(0), TopicConfig(), UUID(int=2))
    assert directories.topic_id(tp(0)) == UUID(int=2)


def test_what_was_here_before_is_not_made_beforehand() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk, "/a")
    append(directories.create(tp(0), TopicConfig(), UUID(int=1)))
    directories.checkpoint()
    directories.delete(tp(0))
    assert directories.begin_making([(tp(0), UUID(int=2))]) == []
