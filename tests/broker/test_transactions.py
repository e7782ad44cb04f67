"""Partitions and transactions: markers end them, readers of committed records see neither open nor aborted ones.

The coordinator is not asked here (transaction.partition.verification.enable=false): these tests say what it would.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.shortcuts.repeated_fetch import RepeatedFetch
from barnabas.broker.shortcuts.wide_fetch import WideFetches
from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.batch import headers
from barnabas.wire.frames import decode_response
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.wire.messages.producers import DescribeProducersRequest, DescribeProducersTopic
from barnabas.wire.messages.txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.shortcuts.both_ways import BothWays
from tests.broker.speaking import batch, connect, create, fetch_request, produce, produce_request
from tests.raw import RawConnection, frame_of

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
OLDER_WAY = 11
"""The last Produce that does not add its partitions to the transaction by itself."""
LATEST = -1
READ_COMMITTED = 1


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(UNVERIFIED) as running:
        yield running


def write(
    connection: RawConnection, topic: str, pid: int, sequence: int, *values: bytes, epoch: int = 0
) -> Any:
    """Produce in a transaction; the partition's part of the answer."""
    facts = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence, "transactional": True}
    request = produce_request(topic, batch(*(values or (b"x",)), **facts))
    request.transactional_id = f"transaction of {pid}"
    return connection.ask(request, OLDER_WAY).responses[0].partition_responses[0]


def end(
    connection: RawConnection,
    topic: str,
    pid: int,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 0,
    partition: int = 0,
) -> Code:
    """Write a marker; the code that comes back."""
    where = [WritableTxnMarkerTopic(topic, [partition])]
    marker = WritableTxnMarker(pid, epoch, commit, where, coordinator_epoch, transaction_version=version)
    answer = connection.ask(WriteTxnMarkersRequest([marker]), 2)
    return Code.of(answer.markers[0].topics[0].partitions[0].error_code)


def committed_fetch(topic: str, offset: int, **limits: int) -> Any:
    request = fetch_request(topic, {0: offset}, **limits)
    request.isolation_level = READ_COMMITTED
    return request


def read_committed(connection: RawConnection, topic: str, offset: int = 0, **limits: int) -> Any:
    return connection.ask(committed_fetch(topic, offset, **limits), 12).responses[0].partitions[0]


def offsets_in(row: Any) -> list[int]:
    return [header.base_offset for _, header in headers(bytes(row.records))]


def aborted_in(row: Any) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in row.aborted_transactions or []]


def latest(connection: RawConnection, topic: str, isolation: int) -> int:
    rows = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=LATEST)])]
    answer = connection.ask(ListOffsetsRequest(isolation_level=isolation, topics=rows), 7)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def test_committed_records_are_read_when_their_transaction_has_ended(
    connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    produce(connection, topic, batch(b"before"))
    assert write(connection, topic, 1, 0).base_offset == 1
    produce(connection, topic, batch(b"behind"))
    row = read_committed(connection, topic)
    assert (row.high_watermark, row.last_stable_offset, offsets_in(row)) == (3, 1, [0])
    assert [latest(connection, topic, isolation) for isolation in (0, 1)] == [3, 1]
    assert end(connection, topic, 1, commit=True) is Code.NONE
    row = read_committed(connection, topic)
    assert (row.last_stable_offset, offsets_in(row), aborted_in(row)) == (4, [0, 1, 2, 3], [])
    assert latest(connection, topic, 1) == 4


def test_readers_of_committed_records_are_told_what_was_aborted(
    connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    write(connection, topic, 1, 0)
    write(connection, topic, 2, 0)
    end(connection, topic, 2, commit=False)
    assert aborted_in(read_committed(connection, topic)) == []
    end(connection, topic, 1, commit=False)
    assert aborted_in(read_committed(connection, topic)) == [(2, 1), (1, 0)]
    assert aborted_in(read_committed(connection, topic, 3)) == [(1, 0)]
    plain = connection.ask(fetch_request(topic, {0: 0}), 12).responses[0].partitions[0]
    assert plain.aborted_transactions is None


def test_a_waiting_reader_is_woken_by_the_marker(
    broker: Broker, connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    with connect(broker) as other:
        write(other, topic, 1, 0)
        connection.send(frame_of(committed_fetch(topic, 0, max_wait_ms=60_000), 12))
        produce(other, topic, batch(b"not this"))
        end(other, topic, 1, commit=False)
        _, answer = decode_response(FetchResponse, 12, connection.receive())
        row = answer.responses[0].partitions[0]
        assert (offsets_in(row), aborted_in(row)) == ([0, 1, 2], [(1, 0)])


@pytest.mark.parametrize("version", range(5, 13))
def test_fetches_that_repeat_tell_of_transactions_as_others_do(
    broker: Broker,
    connection: RawConnection,
    topic: str,
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create(connection, topic)
    both = BothWays(broker, RepeatedFetch, monkeypatch)
    try:
        frame: Callable[[int], bytes] = lambda at: frame_of(committed_fetch(topic, at), version, 7)  # noqa: E731
        produce(connection, topic, batch(b"plain"))
        both.learn(frame(0))
        assert both.same(frame(0))
        write(connection, topic, 1, 0)
        write(connection, topic, 2, 0)
        for at in range(3):
            both.same(frame(at))
        end(connection, topic, 1, commit=True)
        end(connection, topic, 2, commit=False)
        produce(connection, topic, batch(b"plain"))
        for at in range(6):
            both.same(frame(at))
    finally:
        both.close()


@pytest.mark.parametrize("version", [5, 12])
def test_a_parked_fetch_is_told_of_a_marker_what_a_later_one_would_be_told(
    broker: Broker, connection: RawConnection, topic: str, version: int
) -> None:
    create(connection, topic)
    with connect(broker) as other:
        for number, commit in enumerate((True, False, False, True)):
            offset = number * 2
            frames = [
                frame_of(committed_fetch(topic, at, max_wait_ms=60_000), version, 7)
                for at in (offset, offset + 1)
            ]
            write(other, topic, 1, number)
            for frame in frames:
                connection.send(frame)
                with connect(broker) as third:
                    if frame is frames[0]:
                        end(third, topic, 1, commit=commit)
                waited = connection.receive()
                connection.send(frame)
                assert waited == connection.receive()


def test_wide_fetches_tell_of_transactions_as_others_do(
    broker: Broker, connection: RawConnection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(connection, topic, 60)
    both = BothWays(broker, WideFetches, monkeypatch)
    try:

        def frame(at: int) -> bytes:
            request = fetch_request(topic, {index: at if index == 0 else 0 for index in range(60)})
            request.isolation_level = READ_COMMITTED
            return frame_of(request, 12, 7)

        both.learn(frame(0))
        write(connection, topic, 1, 0)
        both.same(frame(0))
        both.same(frame(1))
        end(connection, topic, 1, commit=False)
        for at in range(3):
            both.same(frame(at))
    finally:
        both.close()


def test_late_markers_are_refused_and_end_nothing(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    write(connection, topic, 1, 0, epoch=4)
    assert end(connection, topic, 1, commit=True, epoch=3) is Code.INVALID_PRODUCER_EPOCH
    assert end(connection, topic, 1, commit=True, epoch=4, version=2) is Code.INVALID_PRODUCER_EPOCH
    assert end(connection, topic, 1, commit=False, epoch=5, coordinator_epoch=7, version=2) is Code.NONE
    assert end(connection, topic, 1, commit=False, epoch=5, coordinator_epoch=6) is (
        Code.TRANSACTION_COORDINATOR_FENCED
    )
    assert end(connection, topic, 1, commit=False, epoch=5, partition=9) is Code.UNKNOWN_TOPIC_OR_PARTITION
    (described,) = (
        connection.ask(DescribeProducersRequest([DescribeProducersTopic(topic, [0])]), 0).topics[0].partitions
    )
    (producer,) = described.active_producers
    assert (producer.producer_epoch, producer.coordinator_epoch) == (5, 7)
    assert producer.current_txn_start_offset == -1


def test_markers_of_several_transactions_are_answered_for_themselves(
    connection: RawConnection, topic: str
) -> None:
    create(connection, topic, 2)
    write(connection, topic, 1, 0)
    where = [WritableTxnMarkerTopic(topic, [0, 1, 2])]
    markers = [WritableTxnMarker(pid, 0, True, where, 0) for pid in (1, 2)]
    answer = connection.ask(WriteTxnMarkersRequest(markers), 1)
    for marker in answer.markers:
        codes = [row.error_code for row in marker.topics[0].partitions]
        assert codes == [0, 0, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert [marker.producer_id for marker in answer.markers] == [1, 2]


def test_a_marker_for_offsets_waits_for_the_groups_coordinator(connection: RawConnection) -> None:
    code = end(connection, "__consumer_offsets", 1, commit=True)
    assert code in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_LEADER_OR_FOLLOWER, Code.NONE)


def test_what_is_deleted_of_an_open_transaction_holds_no_reader_up(
    connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    write(connection, topic, 1, 0)
    produce(connection, topic, batch(b"x"))
    deleted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 1)])
    connection.ask(DeleteRecordsRequest([deleted], timeout_ms=5000), 2)
    assert latest(connection, topic, READ_COMMITTED) == 1
    assert read_committed(connection, topic, 1).last_stable_offset == 1


def test_transactions_go_on_after_a_restart(tmp_path: Path) -> None:
    with Broker(UNVERIFIED, data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t")
        write(connection, "t", 1, 0)
        write(connection, "t", 2, 0)
        end(connection, "t", 1, commit=False)
    with Broker(UNVERIFIED, data=tmp_path) as broker, connect(broker) as connection:
        assert read_committed(connection, "t").last_stable_offset == 1
        write(connection, "t", 2, 1)
        end(connection, "t", 2, commit=True)
        row = read_committed(connection, "t")
        assert (row.last_stable_offset, aborted_in(row)) == (5, [(1, 0)])


def test_a_transaction_without_answers_costs_the_connection(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    request = produce_request(topic, batch(b"x"), acks=0)
    request.transactional_id = "quiet"
    connection.send(frame_of(request, OLDER_WAY))
    assert connection.closes()


def test_a_request_has_batches_of_one_producer(connection: RawConnection, topic: str) -> None:
    create(connection, topic, 2)
    facts = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    request = produce_request(topic, batch(b"x", producer_id=1, **facts))
    other = produce_request(topic, batch(b"x", producer_id=2, **facts), 1)
    request.topic_data += other.topic_data
    request.transactional_id = "two"
    answer = connection.ask(request, 12)
    codes = {row.error_code for each in answer.responses for row in each.partition_responses}
    assert codes == {Code.INVALID_PRODUCER_ID_MAPPING}
