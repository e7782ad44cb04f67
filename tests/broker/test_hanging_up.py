"""A client that asks for a change and hangs up: it is made all the same, and as a whole."""

import gc
from pathlib import Path

import pytest

from barnabas.broker.broker import Broker as RunningBroker
from barnabas.broker.metadata import Metadata
from barnabas.cluster.image import ClusterImage
from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.coordinator import FindCoordinatorRequest
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.broker.speaking import batch, connect, create, fetch, produce
from tests.deadline import eventually
from tests.raw import RawConnection, frame_of


def sizes(connection: RawConnection) -> dict[str, int]:
    """The topics, and how many partitions of each have a leader."""
    topics = connection.ask(MetadataRequest(None), 12).topics
    return {topic.name: sum(each.leader_id >= 0 for each in topic.partitions) for topic in topics}


def hang_up_after(broker: Broker, request: object, version: int, begun: str) -> None:
    """As soon as there is a file of this kind."""
    with connect(broker) as connection:
        connection.send(frame_of(request, version))
        eventually(lambda: any(broker.data.glob(begun)), "the broker to begin")


def test_a_topic_is_made_once_though_its_client_is_gone(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        hang_up_after(broker, CreateTopicsRequest([CreatableTopic("t", 200, 1)]), 7, "t-*")
        eventually(lambda: sizes(connection) == {"t": 200}, "the topic")
        again = connection.ask(CreateTopicsRequest([CreatableTopic("t", 200, 1)]), 7)
        assert again.topics[0].error_code == Code.TOPIC_ALREADY_EXISTS
        growth = CreatePartitionsRequest([CreatePartitionsTopic("t", 400)])
        hang_up_after(broker, growth, 3, "t-200")
        eventually(lambda: sizes(connection) == {"t": 400}, "the new partitions")
        assert connection.ask(growth, 3).results[0].error_code == Code.INVALID_PARTITIONS
        assert produce(connection, "t", batch(b"kept"), 0).error_code == 0
        assert produce(connection, "t", batch(b"kept"), 399).error_code == 0
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        assert sizes(connection) == {"t": 400}
        for row in fetch(connection, "t", {0: 0, 399: 0}):
            assert b"kept" in bytes(row.records or b"")
    assert not list(tmp_path.glob("*-stray"))


def test_many_topics_whose_clients_are_gone_at_once_are_whole_or_not_there(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(20)]
    requests = [CreateTopicsRequest([CreatableTopic(name, 1, 1)]) for name in names]
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        for request in requests:
            with connect(broker) as other:
                other.send(frame_of(request, 7))
        for request in requests:
            connection.ask(request, 7)
        assert sizes(connection) == dict.fromkeys(names, 1)
        for name in names:
            assert produce(connection, name, batch(b"kept")).error_code == 0
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        for name in names:
            assert b"kept" in bytes(fetch(connection, name, {0: 0})[0].records or b"")
    assert not list(tmp_path.glob("*-stray"))


def test_a_topic_is_deleted_as_a_whole(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t", 200)
        with connect(broker) as other:
            other.send(frame_of(DeleteTopicsRequest(topic_names=["t"]), 5))
            eventually(lambda: len(list(tmp_path.glob("t-*"))) < 200, "the broker to begin")
        eventually(lambda: sizes(connection) == {}, "the topic to be gone")
        eventually(lambda: not list(tmp_path.glob("t-*")), "its folders to be gone")


def test_the_topic_of_the_groups_is_made_once(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        request = FindCoordinatorRequest(coordinator_keys=["g"])
        hang_up_after(broker, request, 4, "__consumer_offsets-*")
        eventually(lambda: sizes(connection) == {"__consumer_offsets": 50}, "the topic")
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        assert sizes(connection) == {"__consumer_offsets": 50}
    assert not list(tmp_path.glob("*-stray"))


def test_a_broker_that_is_stopped_finishes_what_it_has_begun(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        hang_up_after(broker, CreateTopicsRequest([CreatableTopic("t", 400, 1)]), 7, "t-*")
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        assert sizes(connection) == {"t": 400}
    assert not list(tmp_path.glob("*-stray"))


def test_a_client_that_hangs_up_before_its_turn_has_changed_nothing(tmp_path: Path) -> None:
    """A thousand topics that nobody waits for any more would keep a broker from stopping."""
    with Broker(data=tmp_path) as broker:
        wishes = [CreatableTopic(f"t{number}", 1, 1) for number in range(1000)]
        hang_up_after(broker, CreateTopicsRequest(wishes), 7, "t*-0")
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        assert 0 < len(sizes(connection)) < 1000
    assert not list(tmp_path.glob("*-stray"))


def test_a_handler_that_fails_where_no_answer_can_say_so_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: RunningBroker, image: ClusterImage) -> None:
        raise RuntimeError("unforeseen")

    with Broker() as broker, connect(broker) as connection, connect(broker) as other:
        monkeypatch.setattr(RunningBroker, "levels", fail)
        connection.send(frame_of(DescribeConfigsRequest([DescribeConfigsResource(4, "1")]), 4))
        assert connection.closes()
        assert sizes(other) == {}


def test_a_change_that_fails_is_told_of_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Metadata, decide: object) -> None:
        raise RuntimeError("unforeseen")

    with Broker() as broker, connect(broker) as connection:
        monkeypatch.setattr(Metadata, "change", fail)
        answer = connection.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
        assert answer.topics[0].error_code == Code.UNKNOWN_SERVER_ERROR


def test_a_refusal_after_its_client_has_gone_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    request = CreateTopicsRequest([CreatableTopic("t", 200, 1)], timeout_ms=1)
    with Broker() as broker, connect(broker) as connection:
        for _ in range(5):
            connection.ask(request, 7)
        eventually(lambda: sizes(connection) == {"t": 200}, "the topic")
    gc.collect()
    assert "never retrieved" not in caplog.text
