"""A fetch of many partitions is answered in a short way: nobody can tell by the answer."""

import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.broker.broker import Broker as RunningBroker
from barnabas.broker.shortcuts.wide_fetch import WideFetches
from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.codec import Malformed, decoder
from barnabas.wire.decoding import MOST_ELEMENTS
from barnabas.wire.frames import decode_response, read_request_header
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.shortcuts.both_ways import BothWays
from tests.broker.speaking import batch, connect, create, produce
from tests.raw import RawConnection, frame_of

VERSION = 12
PARTITIONS = 40
TOPICS = ("many", "more")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawConnection]:
    with connect(broker) as connection:
        for topic in TOPICS:
            create(connection, topic, PARTITIONS)
        yield connection


@pytest.fixture
def both_ways(
    broker: Broker, client: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[bytes], bool]]:
    """Sends the same frame so that it takes the short way, and so that it does not. True where it did take it."""
    ways = BothWays(broker, WideFetches, monkeypatch)
    ways.learn(frame_of(request(lambda topic, index: 0), VERSION))
    yield ways.same
    ways.close()


def request(offsets: Callable[[str, int], int], **limits: Any) -> FetchRequest:
    topics = [
        FetchTopic(
            topic,
            [
                FetchPartition(index, fetch_offset=offsets(topic, index), partition_max_bytes=1 << 20)
                for index in range(PARTITIONS)
            ],
        )
        for topic in TOPICS
    ]
    return FetchRequest(topics=topics, min_bytes=1, **limits)


def test_answers_are_the_same(client: RawConnection, both_ways: Callable[[bytes], bool]) -> None:
    dice = random.Random(7)
    ends = {(topic, index): 0 for topic in TOPICS for index in range(PARTITIONS)}
    for turn in range(20):
        for _ in range(dice.randrange(4)):
            topic, index = dice.choice(list(ends))
            ends[topic, index] += 1
            produce(client, topic, batch(b"x" * dice.randrange(3000)), index)
        behind = {key: max(0, end - (dice.random() < 0.1)) for key, end in ends.items()}
        limits = {"max_bytes": dice.choice([1, 2000, 1 << 20]), "isolation_level": turn % 2}
        asked = request(lambda topic, index, at=behind: at[topic, index], **limits)  # type: ignore[misc]
        for wanted in (part for each in asked.topics for part in each.partitions):
            wanted.current_leader_epoch = dice.choice([-1, 0])
            wanted.last_fetched_epoch = dice.choice([-1, 0])
        assert both_ways(frame_of(asked, VERSION, correlation_id=turn))


def test_records_are_in_the_answer(client: RawConnection) -> None:
    produce(client, "more", batch(b"hello"), 7)
    for _ in range(2):
        client.send(frame_of(request(lambda topic, index: 0), VERSION, correlation_id=5))
        answered, found = decode_response(FetchResponse, VERSION, client.receive())
        assert answered == 5
        rows = {(t.topic, row.partition_index): row for t in found.responses for row in t.partitions}
        assert {key for key, row in rows.items() if row.records} == {("more", 7)}
        records = rows["more", 7].records
        assert isinstance(records, memoryview)
        assert b"hello" in records.tobytes()
        assert {row.error_code for row in rows.values()} == {0}


def test_what_is_unusual_is_left_to_the_general_way(both_ways: Callable[[bytes], bool]) -> None:
    everything = request(lambda topic, index: 0)
    assert both_ways(frame_of(everything, VERSION))
    for wrong, code in (
        (FetchPartition(PARTITIONS, fetch_offset=0), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (FetchPartition(3, fetch_offset=99), Code.OFFSET_OUT_OF_RANGE),
        (FetchPartition(3, current_leader_epoch=9), Code.UNKNOWN_LEADER_EPOCH),
    ):
        asked = request(lambda topic, index: 0)
        asked.topics[0].partitions[3] = wrong
        assert not both_ways(frame_of(asked, VERSION)), code
    with_a_rack = request(lambda topic, index: 0)
    with_a_rack.rack_id = "left"
    with_a_session = request(lambda topic, index: 0)
    with_a_session.session_id = 5
    for unusual in (with_a_rack, with_a_session):
        assert not both_ways(frame_of(unusual, VERSION))
    assert not both_ways(frame_of(everything, 11)), "an older version"


@pytest.mark.parametrize("topics", [MOST_ELEMENTS - 1, MOST_ELEMENTS + 1])
def test_no_more_elements_are_answered_than_are_decoded(topics: int) -> None:
    asked = FetchRequest(topics=[FetchTopic("many", [])])
    frame = memoryview(frame_of(asked, VERSION)[4:])
    header = read_request_header(frame)
    start = bytes(frame[: header.body_at + 25])
    one = bytes(frame[header.body_at + 26 : -3])
    count = topics + 1
    varint = bytes((count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14))
    many = memoryview(start + varint + one * topics + bytes(frame[-3:]))
    with Broker() as broker:
        inside = running(broker)
        found = WideFetches(inside, inside.server.router).answer(many, 0, None)  # type: ignore[arg-type]
    assert (found is not None) == (topics < MOST_ELEMENTS)
    if found is None:
        with pytest.raises(Malformed, match="more than"):
            decoder(FetchRequest, VERSION)(many, header.body_at)


def test_a_followers_fetch_is_not_answered_as_a_consumers(broker: Broker, client: RawConnection) -> None:
    inside = running(broker)
    shortcut = WideFetches(inside, inside.server.router)
    asked = request(lambda topic, index: 0)
    for replica, is_taken in ((-1, True), (7, False)):
        asked.replica_id = replica
        found = shortcut.answer(memoryview(frame_of(asked, VERSION)[4:]), 0, None)  # type: ignore[arg-type]
        assert (found is not None) == is_taken


def running(broker: Broker) -> Any:
    """The broker inside a test's broker."""
    return next(
        each
        for each in gc.get_objects()
        if isinstance(each, RunningBroker) and hasattr(each, "metadata") and each.address == broker.bootstrap
    )


def test_a_wide_fetch_with_nothing_to_read_waits(
    client: RawConnection, both_ways: Callable[[bytes], bool]
) -> None:
    asked = request(lambda topic, index: 0)
    asked.max_wait_ms = 50
    assert not both_ways(frame_of(asked, VERSION))
    produce(client, "many", batch(b"x"), 0)
    assert both_ways(frame_of(asked, VERSION))
