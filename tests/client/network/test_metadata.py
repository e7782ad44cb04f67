"""Promises of client/network/metadata.py: what a client knows of leaders never goes back."""

from uuid import UUID

import pytest

from barnabas.client.network.metadata import Metadata
from barnabas.errors import Code
from barnabas.types import TopicPartition
from barnabas.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

HERE = TopicPartition("t", 0)
ONE, OTHER = UUID(int=1), UUID(int=2)


def answer(leader: int, epoch: int, topic_id: UUID = ONE, code: Code = Code.NONE) -> MetadataResponse:
    rows = [] if code else [MetadataResponsePartition(0, 0, leader, epoch, [1, 2], [1, 2])]
    topic = MetadataResponseTopic(code, "t", topic_id=topic_id, partitions=rows)
    brokers = [MetadataResponseBroker(node, "localhost", 9000 + node) for node in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[topic])


def leader_after(*answers: MetadataResponse, asked: tuple[str, ...] | None = ("t",)) -> tuple[int, int]:
    metadata = Metadata()
    for each in answers:
        metadata.update(each, asked)
    found = metadata.snapshot.partition(HERE)
    assert found is not None
    return found.leader, found.leader_epoch


@pytest.mark.parametrize("asked", [("t",), None], ids=["one topic", "all topics"])
def test_a_broker_that_is_behind_does_not_bring_an_old_leader_back(asked: tuple[str, ...] | None) -> None:
    assert leader_after(answer(2, 5), answer(1, 4), asked=asked) == (2, 5)
    assert leader_after(answer(2, 5), answer(1, 6), asked=asked) == (1, 6)


@pytest.mark.parametrize("code", [Code.LEADER_NOT_AVAILABLE, Code.UNKNOWN_TOPIC_OR_PARTITION])
def test_nor_does_one_that_was_silent_about_the_topic_in_between(code: Code) -> None:
    """A broker that has just started may not know of a topic yet, and then of an old leader."""
    between = answer(-1, -1, code=code)
    assert leader_after(answer(2, 5), between, answer(1, 4)) == (2, 5)


def test_a_topic_that_was_made_anew_begins_anew() -> None:
    assert leader_after(answer(2, 5), answer(1, 0, OTHER)) == (1, 0)
    gone = answer(-1, -1, code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert leader_after(answer(2, 5), gone, answer(1, 0, OTHER)) == (1, 0)
