"""Fetch: waits as long as it was told and no longer, keeps limits, and always lets a reader get on."""

import time

import pytest

from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.batch import headers
from tests.broker.speaking import batch, connect, create, fetch, fetch_request, produce
from tests.raw import RawConnection, frame_of


def test_a_waiting_fetch_is_answered_by_the_next_produce(
    broker: Broker, connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    connection.send(frame_of(fetch_request(topic, {0: 0}, max_wait_ms=30_000), 12))
    with connect(broker) as other:
        produce(other, topic, batch(b"hello"))
    assert b"hello" in connection.receive()


@pytest.mark.parametrize("version", range(4, 13))
@pytest.mark.parametrize("size", [1, 60, 8_000, 40_000])
def test_a_parked_fetch_is_told_what_a_later_one_would_be_told(
    broker: Broker, connection: RawConnection, topic: str, version: int, size: int
) -> None:
    create(connection, topic)
    with connect(broker) as other:
        for offset in range(2):
            frame = frame_of(fetch_request(topic, {0: offset}, max_wait_ms=30_000), version, 7)
            connection.send(frame)
            produce(other, topic, batch(b"x" * size))
            waited = connection.receive()
            connection.send(frame)
            assert waited == connection.receive()


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_parked_fetch_gets_all_that_came_meanwhile(
    broker: Broker, connection: RawConnection, topic: str, epoch: int
) -> None:
    create(connection, topic)
    connection.send(
        frame_of(fetch_request(topic, {0: 0}, max_wait_ms=30_000, min_bytes=150, epoch=epoch), 12)
    )
    with connect(broker) as other:
        produce(other, topic, batch(b"first"))
        produce(other, topic, batch(b"second"))
        produce(other, topic, batch(b"third" * 20))
    answer = connection.receive()
    assert b"first" in answer
    assert b"second" in answer


def test_a_fetch_with_nothing_to_read_comes_back_after_its_wait(
    connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    begun = time.monotonic()
    (row,) = fetch(connection, topic, {0: 0}, max_wait_ms=150)
    assert row.error_code == 0
    assert not row.records
    assert time.monotonic() - begun >= 0.14


def test_a_fetch_waits_until_min_bytes_are_there(
    broker: Broker, connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    connection.send(frame_of(fetch_request(topic, {0: 0}, max_wait_ms=30_000, min_bytes=400), 12))
    with connect(broker) as other:
        for value in (b"a" * 100, b"b" * 100, b"c" * 200):
            produce(other, topic, batch(value))
    answer = connection.receive()
    assert b"a" * 100 in answer
    assert b"c" * 200 in answer


def test_the_first_batch_is_whole_whatever_the_limits(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    large = batch(b"x" * 50_000)
    produce(connection, topic, large)
    (row,) = fetch(connection, topic, {0: 0}, max_bytes=1, partition_max_bytes=1)
    assert len(row.records or b"") == len(large)


def test_only_one_partition_overruns_the_limits(connection: RawConnection, topic: str) -> None:
    create(connection, topic, 3)
    for index in range(3):
        produce(connection, topic, batch(b"x" * 10_000), index)
    rows = fetch(connection, topic, {0: 0, 1: 0, 2: 0}, max_bytes=10, partition_max_bytes=10)
    assert [bool(row.records) for row in rows] == [True, False, False]


def test_limits_are_kept_across_partitions(connection: RawConnection, topic: str) -> None:
    create(connection, topic, 4)
    size = len(batch(b"x" * 1000))
    for index in range(4):
        for _ in range(4):
            produce(connection, topic, batch(b"x" * 1000), index)
    rows = fetch(
        connection, topic, dict.fromkeys(range(4), 0), max_bytes=6 * size, partition_max_bytes=4 * size
    )
    assert sum(len(row.records or b"") for row in rows) <= 6 * size
    assert len(rows[0].records or b"") == 4 * size


def test_a_fetch_in_the_middle_of_a_batch_gets_the_batch(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    produce(connection, topic, batch(b"a", b"b", b"c"))
    produce(connection, topic, batch(b"d", b"e"))
    (row,) = fetch(connection, topic, {0: 1})
    assert [header.base_offset for _, header in headers(row.records or b"")] == [0, 3]
    (row,) = fetch(connection, topic, {0: 4})
    assert [header.base_offset for _, header in headers(row.records or b"")] == [3]


def test_offsets_outside_the_log_are_refused_at_once(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    produce(connection, topic, batch(b"a"))
    for offset in (-1, 2, 1 << 40):
        (row,) = fetch(connection, topic, {0: offset}, max_wait_ms=30_000)
        assert row.error_code == Code.OFFSET_OUT_OF_RANGE
        assert row.high_watermark == 1


def test_a_leader_epoch_that_is_not_ours_is_fenced(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    (row,) = fetch(connection, topic, {0: 0}, epoch=7)
    assert row.error_code == Code.UNKNOWN_LEADER_EPOCH


def test_unknown_partitions_are_refused_beside_known_ones(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    produce(connection, topic, batch(b"a"))
    rows = fetch(connection, topic, {0: 0, 5: 0})
    assert [row.error_code for row in rows] == [0, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert rows[0].records


def test_a_waiting_fetch_ends_when_its_topic_is_deleted(
    broker: Broker, connection: RawConnection, topic: str
) -> None:
    from barnabas.wire.codec import decode
    from barnabas.wire.messages.fetch import FetchResponse
    from barnabas.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState

    create(connection, topic)
    connection.send(frame_of(fetch_request(topic, {0: 0}, max_wait_ms=60_000), 12))
    with connect(broker) as other:
        assert other.ask(DeleteTopicsRequest([DeleteTopicState(topic)]), 6).responses[0].error_code == 0
    answer = decode(FetchResponse, 12, connection.receive(), 5)
    assert answer.responses[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_large_answers_arrive_whole_and_later_requests_after_them(
    connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    value = bytes(range(256)) * 3000
    for _ in range(24):
        produce(connection, topic, batch(value))
    request = fetch_request(topic, {0: 0}, max_bytes=50 << 20, partition_max_bytes=50 << 20)
    connection.send(frame_of(request, 12, 1) + frame_of(request, 12, 2))
    first, second = connection.receive(), connection.receive()
    assert len(first) > 24 * len(value)
    assert first[4:] == second[4:]
    assert first.count(value) == 24


def test_a_zstd_topic_is_refused_to_readers_too_old_for_it(connection: RawConnection, topic: str) -> None:
    create(connection, topic, compression_type="zstd")
    produce(connection, topic, batch(b"x" * 100))
    for version, code in (
        (4, Code.UNSUPPORTED_COMPRESSION_TYPE),
        (9, Code.UNSUPPORTED_COMPRESSION_TYPE),
        (10, 0),
    ):
        (row,) = connection.ask(fetch_request(topic, {0: 0}), version).responses[0].partitions
        assert (row.error_code, bool(row.records)) == (code, code == 0)


def test_a_zstd_topic_is_refused_to_old_readers_at_its_end_too(connection: RawConnection, topic: str) -> None:
    create(connection, topic, compression_type="zstd")
    for version, code in ((10, Code.NONE), (9, Code.UNSUPPORTED_COMPRESSION_TYPE)):
        answer = connection.ask(fetch_request(topic, {0: 0}), version)
        assert answer.responses[0].partitions[0].error_code == code
