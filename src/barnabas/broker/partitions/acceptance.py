"""The one place where a partition takes a batch from a producer, and says when the producer may be told.

Called by both ways of a produce: `handlers.produce` and `shortcuts.repeated_produce`. Whatever decides whether a batch
may enter (its topic, its codec, and later in-sync replicas, quotas and rights) and when it counts as stored
(flush.messages, and later the followers) is decided here.

Always holds: a refused batch has left no trace, and no batch is acknowledged before it `is_stored`.
"""

from typing import TYPE_CHECKING

from barnabas.broker.partitions.leader import Leader
from barnabas.cluster.controller import INTERNAL_TOPICS
from barnabas.errors import Code, Refused
from barnabas.log.log import Appended
from barnabas.types import Millis, Offset
from barnabas.wire.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE
from barnabas.wire.compression import Compression

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

ZSTD_SINCE = 7


def accept(
    broker: "Broker", topic: str, index: int, records: memoryview | None, *, version: int, now: Millis
) -> tuple[Leader, Appended]:
    """Append a batch that came in a Produce of this version; raises Refused."""
    if topic in INTERNAL_TOPICS:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, "Only the broker writes to its own topics.")
    partition = broker.replicas.leader(topic, index)
    if records is None:
        raise Refused(Code.INVALID_RECORD, "there is no record batch for the partition")
    if version < ZSTD_SINCE:
        _refuse_zstd(records)
    return partition, partition.append(records, now)


def is_stored(partition: Leader, appended: Appended) -> bool:
    """Whether the producer may be told of its batch: what is below the high watermark counts."""
    return appended.last < partition.high_watermark


async def stored(broker: "Broker", partition: Leader, appended: Appended) -> None:
    """Come back when the batch `is_stored`; raises Refused when it cannot be."""
    try:
        await broker.flusher.flush(partition, Offset(appended.last + 1))
    except Refused as refused:
        broker.note_refusal("Produce", refused, *partition.tp)
        raise


def _refuse_zstd(records: memoryview) -> None:
    """A reader that speaks as old a version could not read zstd back: Kafka refuses it, and so do we."""
    if len(records) >= HEADER_SIZE and records[ATTRIBUTES_AT + 1] & CODEC_MASK == Compression.ZSTD:
        raise Refused(
            Code.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce in version {ZSTD_SINCE} or newer"
        )
