"""Where a broker listens, said as Kafka's own files say it."""

import pytest

from barnabas.broker.network.listener import Listener, clients_listener
from barnabas.errors import BarnabasError
from barnabas.testing import Broker
from barnabas.wire.messages.metadata import MetadataRequest
from tests.broker.speaking import connect


def test_a_listener_for_controllers_is_left_out() -> None:
    """As in the server.properties that comes with Kafka."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0, CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
    }
    with Broker(settings) as broker, connect(broker) as connection:
        assert connection.ask(MetadataRequest([]), 12).brokers


def test_several_for_clients_are_refused() -> None:
    with pytest.raises(BarnabasError, match="listeners cannot be"):
        clients_listener("PLAINTEXT://a:1,PLAINTEXT://b:2", "listeners", ())
    with pytest.raises(BarnabasError, match="cannot use CONTROLLER"):
        clients_listener("CONTROLLER://a:1", "listeners", ())
    with pytest.raises(BarnabasError, match="cannot be ''"):
        clients_listener("CONTROLLER://a:1", "listeners", ("controller",))
    assert clients_listener("a:1,C://b:2", "listeners", ("C",)) == Listener("PLAINTEXT", "a", 1)


def test_a_flood_of_connections_is_told_of_in_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    with Broker({"max.connections": "1"}) as broker, connect(broker) as first:
        for _ in range(50):
            with connect(broker) as other:
                assert other.closes()
        assert first.ask(MetadataRequest([]), 12).brokers
    lines = [record for record in caplog.records if "max.connections" in record.getMessage()]
    assert len(lines) <= 10
