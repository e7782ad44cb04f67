"""The embedded store: what it committed is there after any crash, in one piece."""

import errno
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from barnabas.cluster.controller import (
    WantedTopic,
    add_partitions,
    configure_topic,
    create_topic,
    delete_topic,
)
from barnabas.cluster.image import (
    NO_BROKER,
    BrokerImage,
    BrokersConfigured,
    Change,
    ClusterImage,
    LeaderRestarted,
    PartitionsChanged,
    ProducerIdsTaken,
    Recovery,
)
from barnabas.cluster.local import FILE_NAME, LocalStore
from barnabas.cluster.store import StoreFailed
from barnabas.config import BrokerConfig
from barnabas.disk import RealDisk
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.testing.disk import PowerCut, SimulatedDisk, Survival
from barnabas.types import BrokerId, ProducerId

CONFIG = BrokerConfig()
EMPTY = ClusterImage("c", BrokerId(1), {BrokerId(1): BrokerImage(BrokerId(1), "localhost", 9092)})


def wanted(name: str, **facts: object) -> WantedTopic:
    return WantedTopic(name, uuid.uuid4(), **facts)  # type: ignore[arg-type]


def claimed(store: LocalStore) -> LocalStore:
    store.register(EMPTY.brokers[BrokerId(1)])
    store.claim(BrokerId(1))
    return store


def commit(store: LocalStore, changes: list[Change]) -> None:
    store.commit(changes, store.image.version)


def lasting(image: ClusterImage) -> ClusterImage:
    """What of an image is there after a restart: brokers come and go."""
    return replace(image, brokers={}, controller=NO_BROKER)


def busy_store(path: Path) -> LocalStore:
    store = claimed(LocalStore(RealDisk(), str(path), "c"))
    commit(store, create_topic(store.image, wanted("a", partitions=3, configs={"retention.ms": "5"}), CONFIG))
    commit(store, create_topic(store.image, wanted("b"), CONFIG))
    commit(store, add_partitions(store.image, "b", 4, None))
    commit(store, configure_topic(store.image, "b", {"cleanup.policy": "compact"}, CONFIG))
    commit(store, create_topic(store.image, wanted("gone"), CONFIG))
    commit(store, delete_topic(store.image, "gone", CONFIG))
    commit(store, [ProducerIdsTaken(ProducerId(1000)), LeaderRestarted(BrokerId(1))])
    commit(store, [BrokersConfigured("1", {"max.connections": "7"})])
    return store


def test_all_that_was_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    store = busy_store(tmp_path)
    again = LocalStore(RealDisk(), str(tmp_path), "c")
    assert again.image == lasting(store.image)
    assert again.image.topics["b"].partitions[3].leader_epoch == 1
    assert LocalStore(RealDisk(), str(tmp_path), "c").image == again.image


OLD = b"""\
[{"change":"TopicCreated","topic":{"name":"a","id":"00000000-0000-0000-0000-000000000001",\
"partitions":[[[1],[1],1,3]],"configs":{"retention.ms":"5"}}},{"change":"ProducerIdsTaken","next_id":2000}]"""


def test_a_file_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    added = b'[{"change":"PartitionsAdded","name":"a","partitions":[[[1],[1],1,0]]}]'
    restarted = b'[{"change":"LeaderRestarted","broker":1}]'
    lines = [b"%08x %s\n" % (crc32(text), text) for text in (OLD, added, restarted)]
    (tmp_path / FILE_NAME).write_bytes(b"".join(lines))
    image = LocalStore(RealDisk(), str(tmp_path), "c").image
    assert [partition.leader_epoch for partition in image.topics["a"].partitions] == [4, 1]
    assert image.topics["a"].configs == {"retention.ms": "5"}
    assert image.next_producer_id == 2000
    assert image.version == 3


def test_all_there_is_to_say_of_a_partition_lasts(tmp_path: Path) -> None:
    store = busy_store(tmp_path)
    moving = replace(
        store.image.topics["a"].partitions[1],
        leader=NO_BROKER,
        adding=(BrokerId(2),),
        removing=(BrokerId(1),),
        recovery=Recovery.RECOVERING,
    )
    commit(store, [PartitionsChanged("a", {1: moving})])
    for _ in range(2):  # read from the line of the commit, then from the whole that was written anew
        image = LocalStore(RealDisk(), str(tmp_path), "c").image
        assert image == lasting(store.image)
        assert image.topics["a"].partitions[1].recovery is Recovery.RECOVERING


def test_a_torn_last_line_is_dropped_at_every_length(tmp_path: Path) -> None:
    busy_store(tmp_path).close()
    whole = (tmp_path / FILE_NAME).read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(lines[-1])):
        (tmp_path / FILE_NAME).write_bytes(whole[: len(whole) - len(lines[-1]) + cut])
        image = LocalStore(RealDisk(), str(tmp_path), "c").image
        assert image.broker_configs == {}
        assert set(image.topics) == {"a", "b"}


def test_damage_in_the_middle_is_not_passed_over(tmp_path: Path) -> None:
    busy_store(tmp_path).close()
    path = tmp_path / FILE_NAME
    text = bytearray(path.read_bytes())
    text[len(text) // 3] ^= 1
    path.write_bytes(text)
    with pytest.raises(BarnabasError, match="damaged in line"):
        LocalStore(RealDisk(), str(tmp_path), "c")


def simulated_store(disk: SimulatedDisk) -> LocalStore:
    disk.make_dir("/data")
    disk.sync_dir("/")
    return claimed(LocalStore(disk, "/data", "c"))


def test_after_a_failed_sync_no_later_one_is_believed() -> None:
    disk = SimulatedDisk()
    store = simulated_store(disk)
    commit(store, create_topic(store.image, wanted("kept"), CONFIG))
    disk.fail_at = disk.operations + 2  # the append, then the sync
    with pytest.raises(StoreFailed, match=r"cannot be written any more: input/output error\. Repair"):
        commit(store, create_topic(store.image, wanted("doubtful"), CONFIG))
    # The disk works again, and what it says of this file is worth nothing.
    with pytest.raises(StoreFailed):
        commit(store, create_topic(store.image, wanted("later"), CONFIG))
    assert set(store.image.topics) == {"kept"}
    for found in (disk, disk.crash()):
        assert set(LocalStore(found, "/data", "c").image.topics) == {"kept"}


def test_a_write_that_finds_no_room_changes_nothing_and_works_again_with_room() -> None:
    disk = SimulatedDisk()
    store = simulated_store(disk)
    disk.capacity = disk.used()
    with pytest.raises(OSError, match="No space left"):
        commit(store, create_topic(store.image, wanted("t"), CONFIG))
    assert not store.image.topics
    disk.capacity = None
    commit(store, create_topic(store.image, wanted("t"), CONFIG))
    assert set(LocalStore(disk.crash(), "/data", "c").image.topics) == {"t"}


STEPS = 12


def committed(disk: SimulatedDisk, acknowledged: list[str]) -> None:
    """Open a store twice and commit topics in it, noting each that was acknowledged."""
    disk.make_dir("/data")
    disk.sync_dir("/")
    for turn in range(2):
        store = claimed(LocalStore(disk, "/data", "c"))
        for number in range(STEPS // 2):
            name = f"t{turn}-{number}"
            commit(store, create_topic(store.image, wanted(name), CONFIG))
            acknowledged.append(name)
        store.close()


def operations() -> int:
    disk = SimulatedDisk()
    committed(disk, [])
    return disk.operations


@pytest.mark.parametrize("survival", Survival)
def test_after_a_power_cut_at_any_moment_all_that_was_acknowledged_is_there_and_no_hole(
    survival: Survival,
) -> None:
    names = [f"t{turn}-{number}" for turn in range(2) for number in range(STEPS // 2)]
    for at in range(3, operations() + 1):
        for seed in range(3):
            disk, acknowledged = SimulatedDisk(), list[str]()
            disk.stop_at = at
            with suppress(PowerCut):
                committed(disk, acknowledged)
            found = disk.crash(survival, seed)
            if not found.exists("/data"):
                assert not acknowledged
                continue
            topics = set(LocalStore(found, "/data", "c").image.topics)
            assert topics in (set(acknowledged), set(names[: len(acknowledged) + 1]))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_whatever_operation_fails_nothing_acknowledged_is_lost_in_a_power_cut_after_it(number: int) -> None:
    for at in range(3, operations() + 1):
        disk, acknowledged = SimulatedDisk(), list[str]()
        disk.fail_at, disk.error = at, number
        with suppress(OSError, StoreFailed):
            committed(disk, acknowledged)
        for found in (disk, disk.crash(), disk.crash(Survival.EVERYTHING)):
            found.locked.clear()
            if not found.exists("/data"):
                assert not acknowledged
                continue
            assert set(LocalStore(found, "/data", "c").image.topics) >= set(acknowledged)


@pytest.mark.parametrize("torn", [b"", b"0123", b'deadbeef [{"change":'])
def test_a_store_opens_on_a_full_disk_and_goes_on_with_the_file_that_is_there(torn: bytes) -> None:
    disk = SimulatedDisk()
    store = simulated_store(disk)
    commit(store, create_topic(store.image, wanted("before"), CONFIG))
    store.close()
    path = f"/data/{FILE_NAME}"
    disk.open(path).append(torn)
    disk.capacity = disk.used()
    store = claimed(LocalStore(disk, "/data", "c"))
    assert set(store.image.topics) == {"before"}
    assert disk.list("/data") == [FILE_NAME]
    disk.capacity = None
    commit(store, create_topic(store.image, wanted("after"), CONFIG))
    assert set(LocalStore(disk.crash(), "/data", "c").image.topics) == {"before", "after"}


def test_a_new_store_on_a_full_disk_does_not_open() -> None:
    disk = SimulatedDisk()
    disk.capacity = 10
    with pytest.raises(OSError, match="No space left"):
        simulated_store(disk)
    assert disk.list("/data") == []


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\n", "../up"])
def test_names_that_kafka_refuses_are_refused(name: str) -> None:
    with pytest.raises(Refused) as refused:
        create_topic(EMPTY, wanted(name), CONFIG)
    assert refused.value.code is Code.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"partitions": 0}, Code.INVALID_PARTITIONS),
        ({"partitions": -2}, Code.INVALID_PARTITIONS),
        ({"replication_factor": 2}, Code.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 0}, Code.INVALID_REPLICATION_FACTOR),
        ({"assignment": {0: [1], 2: [1]}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: [9]}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: [1, 1]}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: [1]}, "partitions": 2}, Code.INVALID_REQUEST),
        ({"configs": {"no.such": "1"}}, Code.INVALID_CONFIG),
        ({"configs": {"retention.ms": "soon"}}, Code.INVALID_CONFIG),
        ({"configs": {"cleanup.policy": "burn"}}, Code.INVALID_CONFIG),
    ],
)
def test_wishes_that_cannot_be_are_refused_with_kafkas_code(facts: dict[str, object], code: Code) -> None:
    with pytest.raises(Refused) as refused:
        create_topic(EMPTY, wanted("t", **facts), CONFIG)
    assert refused.value.code is code
    assert refused.value.message.endswith(".")


def test_names_that_differ_only_by_dot_and_underscore_collide() -> None:
    image = EMPTY.after(create_topic(EMPTY, wanted("a.b"), CONFIG))
    with pytest.raises(Refused) as refused:
        create_topic(image, wanted("a_b"), CONFIG)
    assert refused.value.code is Code.INVALID_TOPIC_EXCEPTION
