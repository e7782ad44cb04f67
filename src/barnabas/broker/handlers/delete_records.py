"""DeleteRecords v0-2: everything below an offset goes; the answer is where each log now starts."""

from typing import TYPE_CHECKING

from barnabas.broker.connection import Connection
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
def delete_records(
    broker: "Broker", request: DeleteRecordsRequest, peer: Connection
) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        rows = []
        for wanted in topic.partitions:
            row = DeleteRecordsPartitionResult(wanted.partition_index, -1)
            try:
                partition = broker.replicas.get(topic.name, wanted.partition_index)
                if "delete" not in partition.log.config.cleanup_policy:
                    raise Refused(Code.POLICY_VIOLATION)
                row.low_watermark = partition.delete_records(Offset(wanted.offset))
            except Refused as refused:
                broker.note_refusal("DeleteRecords", refused, topic.name, wanted.partition_index)
                row.error_code = refused.code
            rows.append(row)
        topics.append(DeleteRecordsTopicResult(topic.name, rows))
    return DeleteRecordsResponse(topics=topics)
