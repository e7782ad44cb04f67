"""Promises of what lists: topics page by page, and what has settings."""

from collections.abc import Iterator

import pytest

from barnabas import Admin
from barnabas.errors import BarnabasError, Code
from barnabas.testing import Broker
from barnabas.wire.messages.configs import ListConfigResourcesRequest, ListConfigResourcesResponse
from barnabas.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
    TopicPartitionCursor,
)
from tests.raw import RawConnection


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        with Admin(started.bootstrap) as admin:
            for name, partitions in (("a", 3), ("b", 1), ("c", 4)):
                admin.create_topic(name, partitions=partitions)
        yield started


@pytest.fixture
def raw(broker: Broker) -> Iterator[RawConnection]:
    with RawConnection(int(broker.bootstrap.rpartition(":")[2])) as connection:
        yield connection


def pages(raw: RawConnection, limit: int, *names: str) -> Iterator[DescribeTopicPartitionsResponse]:
    cursor: TopicPartitionCursor | None = None
    topics = [DescribeTopicPartitionsTopic(name) for name in names]
    while True:
        page = raw.ask(DescribeTopicPartitionsRequest(topics, limit, cursor), 0)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 100])
def test_pages_together_tell_of_every_partition_once_and_in_order(raw: RawConnection, limit: int) -> None:
    found = []
    for page in pages(raw, limit):
        rows = [(topic.name, row.partition_index) for topic in page.topics for row in topic.partitions]
        assert 0 < len(rows) <= limit
        found += rows
    assert found == [(name, n) for name, count in (("a", 3), ("b", 1), ("c", 4)) for n in range(count)]


def test_a_topic_is_described_with_its_leader_and_replicas(raw: RawConnection) -> None:
    (page,) = pages(raw, 100, "b")
    (topic,) = page.topics
    (row,) = topic.partitions
    assert (row.leader_id, row.replica_nodes, row.isr_nodes, row.eligible_leader_replicas) == (
        1,
        [1],
        [1],
        [],
    )


def test_a_topic_that_there_is_not_has_its_own_error(raw: RawConnection) -> None:
    (page,) = pages(raw, 100, "b", "none", "no such!")
    codes = {topic.name: topic.error_code for topic in page.topics}
    assert codes == {
        "b": Code.NONE,
        "none": Code.UNKNOWN_TOPIC_OR_PARTITION,
        "no such!": Code.INVALID_TOPIC_EXCEPTION,
    }


def resources(raw: RawConnection, version: int, *kinds: int) -> ListConfigResourcesResponse:
    found: ListConfigResourcesResponse = raw.ask(ListConfigResourcesRequest(list(kinds)), version)
    return found


def test_what_has_settings_is_listed_by_kind(raw: RawConnection) -> None:
    everything = resources(raw, 1).config_resources
    assert {(each.resource_type, each.resource_name) for each in everything} >= {(2, "a"), (2, "c"), (4, "1")}
    assert [each.resource_name for each in resources(raw, 1, 4).config_resources] == ["1"]
    assert resources(raw, 1, 99).error_code == Code.UNSUPPORTED_VERSION
    assert resources(raw, 0).config_resources == []


def test_a_broker_that_lives_or_never_was_is_not_unregistered(broker: Broker) -> None:
    with Admin(broker.bootstrap) as admin:
        with pytest.raises(BarnabasError, match="Broker 1 is alive: stop it first"):
            admin.unregister_broker(1)
        with pytest.raises(BarnabasError, match="No broker with this id is registered"):
            admin.unregister_broker(7)
