"""Where flush.messages asks for the disk, nothing is seen, acknowledged or committed before it is there."""

import errno
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.shortcuts import wide_fetch
from barnabas.broker.shortcuts.repeated_fetch import RepeatedFetches
from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.frames import decode_response
from barnabas.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas.wire.messages.coordinator import FindCoordinatorRequest
from barnabas.wire.messages.epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from barnabas.wire.messages.produce import ProduceResponse
from tests.broker.gated_disk import Gate
from tests.broker.shortcuts.test_repeated_produce import watch
from tests.broker.speaking import batch, connect, create, fetch, fetch_request, produce, produce_request
from tests.raw import RawConnection, frame_of


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr("barnabas.broker.broker.RealDisk", made.disk)
    yield made
    made.free.set()


def is_silent(*connections: RawConnection) -> bool:
    """Whether none of them has been answered, at a moment when all they can be told of has happened."""
    return not select.select([each.socket for each in connections], [], [], 0)[0]


def list_offset(connection: RawConnection, timestamp: int) -> int:
    wanted = ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=timestamp)])
    answer = connection.ask(ListOffsetsRequest(topics=[wanted]), 7)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def end_of_epoch(connection: RawConnection) -> int:
    wanted = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])
    answer = connection.ask(OffsetForLeaderEpochRequest(-1, [wanted]), 4)
    end: int = answer.topics[0].partitions[0].end_offset
    return end


def produced(connection: RawConnection) -> tuple[int, int]:
    """Error and offset of the answer that was waited for."""
    _, answer = decode_response(ProduceResponse, 9, connection.receive())
    row = answer.responses[0].partition_responses[0]
    return row.error_code, row.base_offset


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("way", ["general", "repeated", "wide"])
def test_what_is_not_on_the_disk_is_not_seen(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, acks: int, way: str
) -> None:
    if way != "repeated":
        monkeypatch.setattr(RepeatedFetches, "learn", lambda *_: None)
    if way == "wide":
        monkeypatch.setattr(wide_fetch, "WIDE", 0)
    with (
        Broker() as broker,
        connect(broker) as producer,
        connect(broker) as waiting,
        connect(broker) as reader,
    ):
        create(reader, "t", flush_messages="1")
        assert produce(reader, "t", batch(b"before")).base_offset == 0
        # The first fetch of a connection takes the general way, whatever the others may take.
        for each in (reader, waiting):
            each.send(frame_of(fetch_request("t", {0: 0}, max_wait_ms=30_000), 12))
            assert b"before" in each.receive()
        waiting.send(frame_of(fetch_request("t", {0: 1}, max_wait_ms=30_000), 12))
        gate.free.clear()
        while not gate.begun.empty():
            gate.begun.get()
        producer.send(frame_of(produce_request("t", batch(b"first"), acks=acks), 9))
        assert gate.begun.get(timeout=60)
        (row,) = fetch(reader, "t", {0: 0})
        assert (row.high_watermark, row.last_stable_offset) == (1, 1)
        assert b"first" not in bytes(row.records)
        (row,) = fetch(reader, "t", {0: 1})
        assert (row.error_code, row.high_watermark, bytes(row.records)) == (0, 1, b"")
        assert [list_offset(reader, timestamp) for timestamp in (-1, -3)] == [1, 0]
        assert end_of_epoch(reader) == 1
        assert is_silent(producer, waiting)
        gate.free.set()
        assert b"first" in waiting.receive()
        if acks:
            assert produced(producer) == (0, 1)
        assert [list_offset(reader, timestamp) for timestamp in (-1, -3)] == [2, 1]
        assert end_of_epoch(reader) == 2
        (row,) = fetch(reader, "t", {0: 0})
        assert (row.high_watermark, b"first" in bytes(row.records)) == (2, True)


@pytest.mark.parametrize("version", [3, 9])
def test_a_repeated_produce_waits_for_the_disk_too(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with Broker() as broker, connect(broker) as producer, connect(broker) as reader:
        create(reader, "t", flush_messages="1")
        taken = watch(monkeypatch)
        producer.send(frame_of(produce_request("t", batch(b"first")), version))
        producer.receive()
        gate.free.clear()
        while not gate.begun.empty():
            gate.begun.get()
        producer.send(frame_of(produce_request("t", batch(b"second")), version))
        assert gate.begun.get(timeout=60)
        assert fetch(reader, "t", {0: 0})[0].high_watermark == 1
        assert is_silent(producer)
        gate.free.set()
        _, answer = decode_response(ProduceResponse, version, producer.receive())
        row = answer.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, 1)
        assert taken == [True]


def test_a_retry_of_what_is_not_on_the_disk_waits_for_it_too(gate: Gate) -> None:
    with Broker() as broker, connect(broker) as producer, connect(broker) as again, connect(broker) as third:
        create(producer, "t", flush_messages="1")
        gate.free.clear()
        records = batch(b"once", producer_id=7, producer_epoch=0, base_sequence=0)
        producer.send(frame_of(produce_request("t", records), 9))
        assert gate.begun.get(timeout=60)
        again.send(frame_of(produce_request("t", records), 9))
        # The retry was heard before this one: it is of the same loop, and was sent first.
        assert fetch(third, "t", {0: 0})[0].high_watermark == 0
        assert is_silent(producer, again)
        gate.free.set()
        assert produced(producer) == produced(again) == (0, 0)


def test_fewer_records_than_flush_messages_are_seen_at_once_and_the_one_that_fills_it_waits(
    gate: Gate,
) -> None:
    with Broker() as broker, connect(broker) as producer, connect(broker) as reader:
        create(reader, "t", flush_messages="3")
        gate.free.clear()
        assert [produce(producer, "t", batch(b"x")).base_offset for _ in range(2)] == [0, 1]
        assert list_offset(reader, -1) == 2
        producer.send(frame_of(produce_request("t", batch(b"third")), 9))
        assert gate.begun.get(timeout=60)
        assert list_offset(reader, -1) == 2
        assert is_silent(producer)
        gate.free.set()
        assert produced(producer) == (0, 2)
        assert list_offset(reader, -1) == 3


def test_a_setting_that_no_longer_asks_for_the_disk_lets_go_what_waits(gate: Gate) -> None:
    with Broker() as broker, connect(broker) as producer, connect(broker) as reader:
        create(reader, "t", flush_messages="1")
        waits = fetch_request("t", {0: 0}, max_wait_ms=30_000)
        gate.free.clear()
        producer.send(frame_of(produce_request("t", batch(b"first")), 9))
        assert gate.begun.get(timeout=60)
        with connect(broker) as admin:
            reader.send(frame_of(waits, 12))
            change = IncrementalAlterableConfig("flush.messages", 0, "1000")
            resource = IncrementalAlterConfigsResource(2, "t", [change])
            assert admin.ask(IncrementalAlterConfigsRequest([resource]), 1).responses[0].error_code == 0
            assert b"first" in reader.receive()
        gate.free.set()
        assert produced(producer) == (0, 0)


def test_a_coordinator_does_not_tell_of_a_commit_that_is_not_on_the_disk(gate: Gate) -> None:
    with (
        Broker({"log.flush.interval.messages": "1"}) as broker,
        connect(broker) as member,
        connect(broker) as other,
        connect(broker) as third,
    ):
        create(member, "t")
        assert member.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0].error_code == 0
        gate.free.clear()
        topics = [OffsetCommitTopic("t", [OffsetCommitPartition(0, 7)])]
        member.send(frame_of(OffsetCommitRequest("g", topics=topics), 9))
        assert "__consumer_offsets" in gate.begun.get(timeout=60)
        other.send(frame_of(OffsetFetchRequest(groups=[OffsetFetchGroup("g", topics=None)]), 8))
        fetch(third, "t", {0: 0})
        assert is_silent(member, other)
        gate.free.set()
        _, committed = decode_response(OffsetCommitResponse, 9, member.receive())
        assert committed.topics[0].partitions[0].error_code == 0
        _, known = decode_response(OffsetFetchResponse, 8, other.receive())
        assert known.groups[0].topics[0].partitions[0].committed_offset == 7


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EIO])
@pytest.mark.parametrize("acks", [0, 1])
def test_an_fsync_that_fails_takes_its_directory_offline_whatever_its_number(
    gate: Gate, tmp_path: Path, number: int, acks: int
) -> None:
    with (
        Broker({"log.dirs": f"{tmp_path}/a,{tmp_path}/b"}) as broker,
        connect(broker) as producer,
        connect(broker) as waiting,
        connect(broker) as reader,
    ):
        create(reader, "t", 2, flush_messages="1")
        homes = {path.name: path.parent.name for path in tmp_path.glob("*/t-*")}
        (lost,) = (int(name[-1]) for name, home in homes.items() if home == "b")
        waiting.send(frame_of(fetch_request("t", {lost: 0}, max_wait_ms=30_000), 12))
        gate.error = number
        producer.send(frame_of(produce_request("t", batch(b"lost"), lost, acks), 9))
        _, answer = decode_response(FetchResponse, 12, waiting.receive())
        assert answer.responses[0].partitions[0].error_code == Code.KAFKA_STORAGE_ERROR
        if acks:
            assert produced(producer) == (Code.KAFKA_STORAGE_ERROR, -1)
        gate.error = 0
        assert produce(reader, "t", batch(b"x"), lost).error_code == Code.KAFKA_STORAGE_ERROR
        assert produce(reader, "t", batch(b"x"), 1 - lost).error_code == 0
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()


def test_what_a_kill_left_unflushed_is_on_the_disk_before_it_is_seen(gate: Gate, tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "lazy")
        create(connection, "t", flush_messages="1")
        for topic in ("lazy", "t"):
            assert produce(connection, topic, batch(b"x")).base_offset == 0
    # As a kill would leave it: what of it is on the disk is not known.
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    while not gate.begun.empty():
        gate.begun.get()
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        assert [Path(path).parent.name for path in gate.begun.queue] == ["t-0"]
        assert list_offset(connection, -1) == 1
