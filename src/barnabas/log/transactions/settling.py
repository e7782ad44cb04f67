"""Finds out again which transactions of a segment were aborted, where recovery has read it. `Log.open` calls it.

A marker tells how a transaction ended, and not where it began: that lies before it, as a rule in the same segment, but
perhaps in one long sealed. So the producers' state is brought to where the doubt begins, from a snapshot, and the
batches from there on are applied to it.
"""

from collections.abc import Sequence
from contextlib import suppress

from barnabas.log.index_notes import IndexNotes
from barnabas.log.producers import ProducerStates
from barnabas.log.segment import Segment
from barnabas.log.snapshots import Snapshots, replayed
from barnabas.types import Millis, Offset


def settle(
    segments: Sequence[Segment],
    snapshots: Snapshots,
    notes: IndexNotes,
    start: Offset,
    recovery_point: Offset,
    now: Millis,
) -> None:
    """Write the index of aborted transactions of each segment in doubt; what lasts of these is noted."""
    doubtful = [segment for segment in segments if segment.unsettled is not None]
    if not doubtful:
        return
    first, last = doubtful[0], doubtful[-1]
    assert first.unsettled is not None
    states = ProducerStates()
    snapshots.load(states, start, first.unsettled, now)
    for segment in segments:
        if states.end < segment.end and segment.base <= last.base:
            _settle_one(segment, states, now)
    # Without its note a segment is only read through again next time.
    with suppress(OSError):
        lasting = [each for each in doubtful if each.end <= recovery_point and each.is_sealed]
        notes.add([each.index_note() for each in lasting], [each.base for each in segments])


def _settle_one(segment: Segment, states: ProducerStates, now: Millis) -> None:
    begin = segment.unsettled
    segment.unsettled = None
    aborted = [ended.entry for ended in replayed(states, segment, now) if ended.aborted]
    states.end = segment.end
    if begin is not None:
        known = [each for each in segment.aborted if each.last < begin]
        segment.aborted.replace([*known, *(each for each in aborted if each.last >= begin)])
