"""Decides whether what a leader sent may enter a follower's log. `Log.append_replicated` asks."""

from barnabas.errors import Code, Refused
from barnabas.types import LeaderEpoch, Offset
from barnabas.wire.batch import MAGIC, BatchHeader, crc_of, headers


def replicated(
    batches: memoryview, end: Offset, last_epoch: LeaderEpoch, epoch: LeaderEpoch
) -> list[tuple[int, BatchHeader]]:
    """Places and headers of the whole batches; raises Refused where one is broken or does not follow `end`.

    A gap is none of our business: the leader's cleaner may have taken what was there. Epochs begin at the one of the
    last record, never fall, and end at the one that was fetched under: anything else is no leader's log.
    """
    found = list(headers(batches))
    for at, header in found:
        if header.magic != MAGIC or crc_of(batches, at, header.size) != header.crc:
            raise Refused(
                Code.CORRUPT_MESSAGE, f"the leader's batch at offset {header.base_offset} is broken"
            )
        if header.base_offset < end or header.last_offset_delta < 0:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE, f"the leader sent offset {header.base_offset} where {end} is due"
            )
        if not last_epoch <= header.leader_epoch <= epoch:
            raise Refused(
                Code.CORRUPT_MESSAGE,
                f"the leader of epoch {epoch} sent a batch of epoch {header.leader_epoch} behind one of {last_epoch}",
            )
        end, last_epoch = header.next_offset, LeaderEpoch(header.leader_epoch)
    return found
