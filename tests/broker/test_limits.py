"""Limits on connections: too many are refused, silent ones are closed, waiting ones are not."""

import pytest

from barnabas.testing import Broker
from barnabas.wire.messages.metadata import MetadataRequest
from tests.broker.speaking import batch, connect, create, fetch, fetch_request, produce
from tests.deadline import eventually
from tests.raw import Gone, frame_of


@pytest.mark.parametrize("setting", ["max.connections", "max.connections.per.ip"])
def test_a_connection_too_many_is_closed_and_room_is_given_again(setting: str) -> None:
    with Broker({setting: "2"}) as broker, connect(broker) as first:
        with connect(broker) as second:
            assert second.ask(MetadataRequest([]), 12).brokers
            with connect(broker) as third:
                assert third.closes()
        assert first.ask(MetadataRequest([]), 12).brokers
        # The second's place is free once the broker has seen it go: that is before the next one is accepted.
        with connect(broker) as fourth:
            assert fourth.ask(MetadataRequest([]), 12).brokers


def test_a_silent_connection_is_closed_and_a_waiting_fetch_is_not() -> None:
    short = Broker({"connections.max.idle.ms": "2500"})
    with short as broker, connect(broker) as waiting, connect(broker) as silent:
        create(waiting, "t")
        assert silent.ask(MetadataRequest([]), 12).brokers
        (row,) = fetch(waiting, "t", {0: 0}, max_wait_ms=6000)
        assert row.error_code == 0
        assert silent.closes()


def test_half_a_request_is_silence() -> None:
    with Broker({"connections.max.idle.ms": "1000"}) as broker, connect(broker) as half:
        half.send(frame_of(MetadataRequest([]), 12)[:-3])
        assert half.closes()


def test_a_client_that_does_not_read_its_answers_is_silent() -> None:
    with (
        Broker({"connections.max.idle.ms": "1000", "max.connections": "1"}) as broker,
        connect(broker) as deaf,
    ):
        create(deaf, "t")
        produce(deaf, "t", batch(b"x" * 900_000))
        for _ in range(20):
            deaf.send(frame_of(fetch_request("t", {0: 0}), 12))

        def is_there_room() -> bool:
            try:
                with connect(broker) as other:
                    return bool(other.ask(MetadataRequest([]), 12).brokers)
            except Gone:
                return False

        eventually(is_there_room, "the place of the one who does not read")


def test_a_request_larger_than_allowed_ends_its_connection_only() -> None:
    with Broker({"socket.request.max.bytes": "1000"}) as broker, connect(broker) as other:
        with connect(broker) as large:
            large.send((1001).to_bytes(4, "big"))
            assert large.closes()
        assert other.ask(MetadataRequest([]), 12).brokers


def test_a_stopped_broker_lets_its_clients_go() -> None:
    broker = Broker().start()
    with connect(broker) as connection:
        assert connection.ask(MetadataRequest([]), 12).brokers
        broker.stop()
        assert connection.closes()
        with pytest.raises(Gone):
            connect(broker)


@pytest.mark.parametrize("later", [False, True])
def test_an_answer_that_cannot_be_encoded_ends_the_connection_at_once(
    monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """A handler's mistake must not leave a client waiting for ever."""
    from barnabas.broker import router
    from barnabas.wire.apis import ApiKey
    from barnabas.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

    def wrong(*_: object) -> MetadataResponse:
        return MetadataResponse(topics=[MetadataResponseTopic(name=None)])

    async def wrong_later(*_: object) -> MetadataResponse:
        return wrong()

    with Broker() as broker, connect(broker) as first:
        assert first.ask(MetadataRequest([]), 11).brokers
        monkeypatch.setitem(router._handlers, ApiKey.METADATA, (wrong_later if later else wrong, None))
        with connect(broker) as second:
            second.send(frame_of(MetadataRequest([]), 10))
            assert second.closes()
