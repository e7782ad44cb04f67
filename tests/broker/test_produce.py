"""Produce: each partition is answered for itself, refusals leave no trace, duplicates are stored once."""

import struct

import pytest

from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.compression import Compression
from barnabas.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from barnabas.wire.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    InitProducerIdRequest,
)
from tests.broker.speaking import batch, connect, create, fetch, produce, produce_request
from tests.raw import RawConnection, frame_of


def test_a_refused_partition_leaves_the_others_alone(connection: RawConnection, topic: str) -> None:
    create(connection, topic, 2)
    good, bad = batch(b"good"), bytearray(batch(b"bad"))
    bad[-1] ^= 1
    parts = [ProducePartition(i, memoryview(data)) for i, data in ((0, bad), (1, good), (9, good))]
    answer = connection.ask(ProduceRequest(acks=1, topic_data=[ProduceTopic(topic, parts)]), 9)
    codes = [row.error_code for row in answer.responses[0].partition_responses]
    assert codes == [Code.CORRUPT_MESSAGE, 0, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert [row.high_watermark for row in fetch(connection, topic, {0: 0, 1: 0})] == [0, 1]


def test_acks_other_than_zero_one_and_all_are_refused(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    answer = connection.ask(produce_request(topic, batch(b"x"), acks=2), 9)
    assert answer.responses[0].partition_responses[0].error_code == Code.INVALID_REQUIRED_ACKS


def test_acks_zero_gets_no_answer(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    connection.send(frame_of(produce_request(topic, batch(b"quiet"), acks=0), 9))
    # The next answer is the next request's: nothing came in between.
    (row,) = fetch(connection, topic, {0: 0}, max_wait_ms=10_000)
    assert b"quiet" in bytes(row.records or b"")


def test_acks_zero_that_is_refused_costs_the_connection(connection: RawConnection, topic: str) -> None:
    connection.send(frame_of(produce_request(topic, batch(b"x"), acks=0), 9))
    assert connection.closes()


def test_a_repeated_batch_is_stored_once_and_answered_with_its_first_offset(
    connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    given = connection.ask(InitProducerIdRequest(), 4)
    assert given.error_code == 0
    facts = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    first = batch(b"a", b"b", base_sequence=0, **facts)
    second = batch(b"c", base_sequence=2, **facts)
    assert produce(connection, topic, first).base_offset == 0
    assert produce(connection, topic, second).base_offset == 2
    assert produce(connection, topic, first).base_offset == 0
    assert produce(connection, topic, batch(b"e", base_sequence=7, **facts)).error_code == (
        Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    (row,) = fetch(connection, topic, {0: 0})
    assert row.high_watermark == 3
    described = connection.ask(DescribeProducersRequest([DescribeProducersTopic(topic, [0, 4])]), 0)
    known, missing = described.topics[0].partitions
    assert [(p.producer_id, p.last_sequence) for p in known.active_producers] == [(given.producer_id, 2)]
    assert missing.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_producer_ids_are_never_given_twice(tmp_path: str) -> None:
    given = set()
    for _ in range(3):
        with Broker(data=tmp_path) as broker, connect(broker) as connection:
            for _ in range(5):
                given.add(connection.ask(InitProducerIdRequest(), 4).producer_id)
    assert len(given) == 15


@pytest.mark.parametrize(
    "setting", ["message.timestamp.type=LogAppendTime", "message.timestamp.type=CreateTime"]
)
def test_log_append_time_is_told_to_the_producer(connection: RawConnection, topic: str, setting: str) -> None:
    name, _, value = setting.partition("=")
    create(connection, topic, **{name.replace(".", "_"): value})
    row = produce(connection, topic, batch(b"x"))
    assert (row.log_append_time_ms > 0) == (value == "LogAppendTime")


def test_many_requests_in_one_packet_are_answered_in_order(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    frames = [frame_of(produce_request(topic, batch(b"%d" % i)), 9, i) for i in range(300)]
    connection.send(b"".join(frames))
    for number in range(300):
        assert struct.unpack_from(">i", connection.receive()) == (number,)
    (row,) = fetch(connection, topic, {0: 0})
    assert row.high_watermark == 300


def test_frames_of_every_size_around_the_buffers_edges(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    sizes = [1, 3900, 4090, 4096, 4100, 8192, 60_000, 65_536, 70_000, 300_000, 1_000_000, 10]
    frames = b"".join(
        frame_of(produce_request(topic, batch(b"x" * size)), 9, size) for size in (*sizes, *reversed(sizes))
    )
    for start in range(0, len(frames), 100_003):
        connection.send(frames[start : start + 100_003])
    for size in (*sizes, *reversed(sizes)):
        assert struct.unpack_from(">i", connection.receive()) == (size,)
    (row,) = fetch(connection, topic, {0: 0})
    assert row.high_watermark == 2 * len(sizes)


def test_zstd_is_refused_in_versions_whose_clients_cannot_read_it(
    connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    records = batch(b"x" * 100, codec=Compression.ZSTD)
    for version, code in (
        (3, Code.UNSUPPORTED_COMPRESSION_TYPE),
        (6, Code.UNSUPPORTED_COMPRESSION_TYPE),
        (7, 0),
    ):
        answer = connection.ask(produce_request(topic, records), version)
        assert answer.responses[0].partition_responses[0].error_code == code
    (row,) = fetch(connection, topic, {0: 0})
    assert row.high_watermark == 1


def test_a_transactional_batch_without_a_transaction_is_refused(
    connection: RawConnection, topic: str
) -> None:
    """Nobody would ever end it: readers of what is committed would never get past it."""
    create(connection, topic)
    produce(connection, topic, batch(b"before"))
    facts = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    row = produce(connection, topic, batch(b"x", transactional=True, **facts))
    assert row.error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produce(connection, topic, batch(b"after", **facts)).error_code == 0
    (read,) = fetch(connection, topic, {0: 0})
    assert read.last_stable_offset == read.high_watermark == 2
