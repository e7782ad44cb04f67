"""DeleteRecords v0-2: everything below an offset goes; the answer is where each log now starts.

Where it starts is on the disk before the answer: after kill -9 what was deleted does not come back. Followers hear of
it with their next fetch; the answer waits until all that live start there too, or until its time is up.
"""

from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.types import Offset
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@handles(ApiKey.DELETE_RECORDS)
async def delete_records(
    broker: "Broker", request: DeleteRecordsRequest, peer: Connection
) -> DeleteRecordsResponse:
    topics = []
    deleted: list[tuple[Leader, DeleteRecordsPartitionResult]] = []
    for topic in request.topics:
        rows = []
        for wanted in topic.partitions:
            row = DeleteRecordsPartitionResult(wanted.partition_index, -1)
            try:
                partition = broker.replicas.leader(topic.name, wanted.partition_index)
                if "delete" not in partition.log.config.cleanup_policy:
                    raise Refused(Code.POLICY_VIOLATION)
                row.low_watermark = partition.delete_records(Offset(wanted.offset))
                deleted.append((partition, row))
            except Refused as refused:
                _refuse(broker, row, refused, topic.name)
            rows.append(row)
        topics.append(DeleteRecordsTopicResult(topic.name, rows))
    for partition, row in deleted:
        try:
            await broker.log_starts.write(partition)
            broker.replicas.leader(*partition.tp)  # it may have gone meanwhile
            outcome = await partition.all_start_at(Offset(row.low_watermark), request.timeout_ms)
            if outcome is not None:
                raise outcome
            row.low_watermark = partition.low_watermark()
        except Refused as refused:
            row.low_watermark = -1
            _refuse(broker, row, refused, partition.tp.topic)
    return DeleteRecordsResponse(topics=topics)


def _refuse(broker: "Broker", row: DeleteRecordsPartitionResult, refused: Refused, topic: str) -> None:
    broker.note_refusal("DeleteRecords", refused, topic, row.partition_index)
    row.error_code = refused.code
