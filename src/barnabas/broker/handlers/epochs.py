"""OffsetForLeaderEpoch v2-4: where a leader epoch ended, so that a log that has diverged can be cut there."""

from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Refused
from barnabas.types import LeaderEpoch
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.epochs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(
    broker: "Broker", request: OffsetForLeaderEpochRequest, peer: Connection
) -> OffsetForLeaderEpochResponse:
    topics = []
    for topic in request.topics:
        rows = []
        for wanted in topic.partitions:
            row = EpochEndOffset(partition=wanted.partition)
            try:
                partition = broker.replicas.leader(topic.topic, wanted.partition)
                partition.check_epoch(wanted.current_leader_epoch)
                row.leader_epoch, row.end_offset = partition.end_of_epoch(LeaderEpoch(wanted.leader_epoch))
            except Refused as refused:
                broker.note_refusal("OffsetForLeaderEpoch", refused, topic.topic, wanted.partition)
                row.error_code = refused.code
            rows.append(row)
        topics.append(OffsetForLeaderTopicResult(topic.topic, rows))
    return OffsetForLeaderEpochResponse(topics=topics)
