"""ListOffsets v1-9: the offset at a timestamp, or at an end of the log."""

from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.types import NO_OFFSET, NO_TIMESTAMP, Millis, Offset
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


READ_COMMITTED = 1


@handles(ApiKey.LIST_OFFSETS)
def list_offsets(broker: "Broker", request: ListOffsetsRequest, peer: Connection) -> ListOffsetsResponse:
    committed = request.isolation_level == READ_COMMITTED
    topics = []
    for topic in request.topics:
        rows = []
        for wanted in topic.partitions:
            row = ListOffsetsPartitionResponse(wanted.partition_index)
            try:
                partition = broker.replicas.leader(topic.name, wanted.partition_index)
                partition.check_epoch(wanted.current_leader_epoch)
                row.timestamp, row.offset = _find(partition, wanted.timestamp, committed)
                if row.offset >= 0:
                    row.leader_epoch = partition.epoch_at(Offset(row.offset))
            except Refused as refused:
                row.error_code = refused.code
                broker.note_refusal("ListOffsets", refused, topic.name, wanted.partition_index)
            rows.append(row)
        topics.append(ListOffsetsTopicResponse(topic.name, rows))
    return ListOffsetsResponse(topics=topics)


def _find(partition: Leader, timestamp: int, committed: bool) -> tuple[Millis, Offset]:
    below = partition.visible_below(committed=committed)
    nothing = (NO_TIMESTAMP, NO_OFFSET)
    match timestamp:
        case -1:  # latest
            if partition.is_behind_its_epoch:
                # An earlier leader may have shown more than this one knows to be committed (KIP-207).
                raise Refused(Code.OFFSET_NOT_AVAILABLE)
            return NO_TIMESTAMP, below
        case -2 | -4:  # earliest; earliest on this machine: we have no other storage
            return NO_TIMESTAMP, partition.log.start
        case -3:  # the record with the largest timestamp
            return partition.log.max_timestamp(below) or nothing
        case -5:  # the latest in tiered storage
            return nothing
        case _ if timestamp < 0:
            raise Refused(Code.INVALID_REQUEST, f"The timestamp {timestamp} is invalid.")
        case _:
            return partition.log.find_timestamp(Millis(timestamp), below) or nothing
