"""Fetches of one partition that repeat are not decoded, and a waiting one is answered from a template.

The answers are what the general way gives, byte for byte, in every version.
"""

from collections.abc import Callable, Iterator

import pytest

from barnabas.broker.shortcuts.repeated_fetch import RepeatedFetch
from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.frames import decode_response
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse
from barnabas.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.shortcuts.both_ways import BothWays
from tests.broker.speaking import batch, connect, create, fetch_request, produce
from tests.raw import RawConnection, frame_of

VERSIONS = range(5, APIS[ApiKey.FETCH].offered + 1)
DIVERGING_SINCE = 12


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawConnection]:
    with connect(broker) as connection:
        create(connection, "t", 2)
        yield connection


@pytest.fixture
def ways(broker: Broker, client: RawConnection, monkeypatch: pytest.MonkeyPatch) -> Iterator[BothWays]:
    both = BothWays(broker, RepeatedFetch, monkeypatch)
    yield both
    both.close()


@pytest.fixture(params=VERSIONS)
def frame(request: pytest.FixtureRequest) -> Callable[..., bytes]:
    """Makes the frame of a fetch in each version."""
    version: int = request.param

    def make(offset: int, change: Callable[[FetchRequest], None] | None = None, **limits: int) -> bytes:
        asked = fetch_request("t", {1: offset}, **limits)
        if change is not None:
            change(asked)
        return frame_of(asked, version, correlation_id=offset + 7)

    return make


def test_answers_are_the_same(client: RawConnection, ways: BothWays, frame: Callable[..., bytes]) -> None:
    for number in range(4):
        produce(client, "t", batch(b"x" * 10**number), 1)
    ways.learn(frame(0))
    for offset in (0, 3, 2, 1, 4, 4):
        assert ways.same(frame(offset)), offset


def test_a_large_answer_comes_from_the_file(
    client: RawConnection, ways: BothWays, frame: Callable[..., bytes]
) -> None:
    for _ in range(3):
        produce(client, "t", batch(b"x" * 100_000), 1)
    ways.learn(frame(0))
    assert ways.same(frame(0))
    assert ways.same(frame(2))


def test_a_waiting_fetch_is_answered_with_what_comes(
    client: RawConnection, ways: BothWays, frame: Callable[..., bytes]
) -> None:
    produce(client, "t", batch(b"first"), 1)
    ways.learn(frame(0, max_wait_ms=30_000))
    waiting = ways.start(frame(1, max_wait_ms=30_000))
    produce(client, "t", batch(b"not for this one"), 0)
    produce(client, "t", batch(b"second"), 1)
    answer = waiting.receive()
    assert ways.taken == [True]
    assert b"second" in answer
    with connect(ways.broker) as fresh:
        fresh.send(frame(1, max_wait_ms=30_000))
        assert fresh.receive() == answer


def test_a_wait_that_ends_with_nothing(ways: BothWays, frame: Callable[..., bytes]) -> None:
    ways.learn(frame(0, max_wait_ms=20))
    assert ways.same(frame(0, max_wait_ms=20))


def test_min_bytes_are_waited_for(client: RawConnection, ways: BothWays, frame: Callable[..., bytes]) -> None:
    limits = {"max_wait_ms": 30_000, "min_bytes": 300}
    produce(client, "t", batch(b"x" * 400), 1)
    ways.learn(frame(0, **limits))
    waiting = ways.start(frame(1, **limits))
    produce(client, "t", batch(b"small"), 1)
    produce(client, "t", batch(b"y" * 250), 1)
    answer = waiting.receive()
    assert ways.taken == [True]
    assert b"small" in answer
    assert b"y" * 250 in answer


def test_refusals_are_left_to_the_general_way(
    client: RawConnection, ways: BothWays, frame: Callable[..., bytes]
) -> None:
    produce(client, "t", batch(b"x"), 1)
    ways.learn(frame(0))
    assert not ways.same(frame(99))
    assert not ways.same(frame(-5))
    assert ways.same(frame(0))
    client.ask(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=5000), 6)
    assert not ways.same(frame(0))


def test_a_deleted_topic_ends_the_wait(
    client: RawConnection, ways: BothWays, frame: Callable[..., bytes]
) -> None:
    ways.learn(frame(0))
    ways.learn(frame(0, max_wait_ms=10))
    waiting = ways.start(frame(0, max_wait_ms=30_000))
    client.ask(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=5000), 6)
    version = int.from_bytes(frame(0)[6:8], "big")
    _, found = decode_response(FetchResponse, version, waiting.receive())
    assert found.responses[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_any_other_byte_that_differs_takes_the_general_way(
    client: RawConnection, ways: BothWays, frame: Callable[..., bytes]
) -> None:
    produce(client, "t", batch(b"x"), 1)
    ways.learn(frame(0))
    assert not ways.same(frame(0, max_bytes=77))
    assert ways.same(frame(0, max_bytes=77)), "it is learned anew"

    def committed(asked: FetchRequest) -> None:
        asked.isolation_level = 1

    assert not ways.same(frame(0, committed))
    assert ways.same(frame(0, committed))


def test_a_reader_that_has_diverged_is_told_so(client: RawConnection, ways: BothWays) -> None:
    produce(client, "t", batch(b"x"), 1)

    def request(epoch: int) -> bytes:
        asked = fetch_request("t", {1: 1})
        asked.topics[0].partitions[0].last_fetched_epoch = epoch
        return frame_of(asked, DIVERGING_SINCE)

    ways.learn(request(0))
    assert ways.same(request(0))
    ways.learn(request(5))
    assert not ways.same(request(5))


def test_frames_that_never_repeat_are_not_learned_for_ever(
    ways: BothWays, frame: Callable[..., bytes]
) -> None:
    for number in range(10):
        ways.learn(frame(0, max_bytes=1000 + number))
    assert not ways.same(frame(0, max_bytes=1009)), "it was given up before"
