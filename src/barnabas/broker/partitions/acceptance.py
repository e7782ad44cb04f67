"""The one place where a partition takes a batch from a producer, and says when the producer may be told.

Called by both ways of a produce: `handlers.produce` and `shortcuts.repeated_produce`. Whatever decides whether a batch
may enter (its topic, its codec, in-sync replicas, and later quotas and rights) and when it counts as stored
(flush.messages, the followers) is decided here.

Always holds: a refused batch has left no trace, and no batch is acknowledged before it is stored.
"""

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.network.promise import Promise
from barnabas.broker.partitions.acknowledgements import Outcome
from barnabas.broker.partitions.leader import OUTSIDE_OF_TRANSACTIONS, Leader
from barnabas.cluster.controller import INTERNAL_TOPICS
from barnabas.errors import Code, Refused
from barnabas.log.log import Appended
from barnabas.log.transactions.verifications import Verification
from barnabas.types import Millis, Offset
from barnabas.wire.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE
from barnabas.wire.compression import Compression

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

ZSTD_SINCE = 7
ALL = -1
"""The acks of a producer that waits for all replicas in sync."""


def accept(
    broker: "Broker",
    topic: str,
    index: int,
    records: memoryview | None,
    version: int,
    acks: int,
    now: Millis,
    verified: Verification | None = OUTSIDE_OF_TRANSACTIONS,
) -> tuple[Leader, Appended, bool]:
    """Append a batch that came in a Produce of this version, and say whether it counts as stored; raises Refused.

    One in a transaction is let in as `verified` says (`verification`). What is below the high watermark counts, and
    with other acks than -1 what the leader of several replicas has.
    """
    if topic in INTERNAL_TOPICS:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, "Only the broker writes to its own topics.")
    partition = broker.replicas.lookup_leader((topic, index)) or broker.replicas.leader(topic, index)
    if records is None:
        raise Refused(Code.INVALID_RECORD, "there is no record batch for the partition")
    if version < ZSTD_SINCE:
        _refuse_zstd(records)
    is_replicated = partition.leadership is not None
    if is_replicated and acks == ALL:
        partition.check_insync()
    appended = partition.append(records, now, verified)
    is_stored = appended.last < partition.high_watermark or (
        is_replicated and acks != ALL and partition.has_stored(appended.last)
    )
    return partition, appended, is_stored


def when_stored(
    broker: "Broker", partition: Leader, appended: Appended, acks: int, timeout_ms: int
) -> Outcome:
    """Given when a batch that `accept` took is stored, or with the refusal that says that it cannot be."""
    if acks == ALL and partition.leadership is not None:
        return partition.wait_for(Offset(appended.last + 1), timeout_ms)
    outcome: Outcome = Promise()

    def tell(task: asyncio.Task[Refused | None]) -> None:
        outcome.give(Refused(Code.REQUEST_TIMED_OUT) if task.cancelled() else task.result())

    asyncio.ensure_future(_flushed(broker, partition, appended)).add_done_callback(tell)
    return outcome


async def _flushed(broker: "Broker", partition: Leader, appended: Appended) -> Refused | None:
    try:
        await broker.flusher.flush(partition, Offset(appended.last + 1))
    except Refused as refused:
        broker.note_refusal("Produce", refused, *partition.tp)
        return refused
    return None


def _refuse_zstd(records: memoryview) -> None:
    """A reader that speaks as old a version could not read zstd back: Kafka refuses it, and so do we."""
    if len(records) >= HEADER_SIZE and records[ATTRIBUTES_AT + 1] & CODEC_MASK == Compression.ZSTD:
        raise Refused(
            Code.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce in version {ZSTD_SINCE} or newer"
        )
