"""Promises of client/consumer/offsets.py: one ListOffsets request to a leader, and an answer for each partition."""

from barnabas.client.consumer.offsets import EARLIEST, LATEST, OffsetAt, OffsetWish, answers_to, request_for
from barnabas.errors import Code, Refused
from barnabas.types import Millis, Offset, TopicPartition
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
WISHES = [OffsetWish(A0, 3, LATEST), OffsetWish(B0, 4, EARLIEST), OffsetWish(A1, 5, 1_000)]


def test_partitions_are_asked_for_topic_by_topic_with_the_epochs_of_their_leaders() -> None:
    request = request_for(WISHES, read_committed=True)
    assert (request.replica_id, request.isolation_level) == (-1, 1)
    assert request.topics == [
        ListOffsetsTopic("a", [ListOffsetsPartition(0, 3, LATEST), ListOffsetsPartition(1, 5, 1_000)]),
        ListOffsetsTopic("b", [ListOffsetsPartition(0, 4, EARLIEST)]),
    ]
    assert request_for(WISHES).isolation_level == 0


def test_each_partition_gets_an_offset_or_a_reason() -> None:
    found = ListOffsetsPartitionResponse(0, timestamp=9, offset=7, leader_epoch=2)
    stale = ListOffsetsPartitionResponse(1, error_code=Code.FENCED_LEADER_EPOCH)
    answers = answers_to(WISHES, ListOffsetsResponse(topics=[ListOffsetsTopicResponse("a", [stale, found])]))
    assert answers[A0] == OffsetAt(Offset(7), Millis(9), 2)
    refused, left_out = answers[A1], answers[B0]
    assert isinstance(refused, Refused)
    assert isinstance(left_out, Refused)
    assert refused.code is Code.FENCED_LEADER_EPOCH
    assert "a-1" in str(refused)
    assert left_out.retriable
    assert "b-0" in str(left_out)
