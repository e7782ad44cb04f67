"""The identity of a producer, and the numbers its batches travel under, so that a repeated one is known. PURE.

Used by `accumulator`. Always holds: a number is given to other records only when those it was given to first are known
not to be stored: a broker has said so, or they were never sent.

A batch that a broker refuses because an earlier one is missing (OUT_OF_ORDER_SEQUENCE_NUMBER, with nothing earlier
on its way) was not stored, nor was any later one: they are numbered anew from 0, in a new epoch of the producer id.
"""

from collections.abc import Iterable

from barnabas.client.producer.partition_state import NO_IDENTITY, PartitionState, ProducerIdentity, WireBatch

_LAST_EPOCH = 32_766
_MASK = 0x7FFFFFFF
"""Sequences wrap round after 2^31 - 1."""
_HALF_A_TURN = 1 << 30


class Numbering:
    """The identity of a producer; without idempotence it has none, and numbers nothing."""

    def __init__(self, *, is_idempotent: bool, is_transactional: bool = False) -> None:
        self.is_idempotent = is_idempotent
        self.is_transactional = is_transactional
        """The transactions' coordinator gives out epochs: none is begun here."""
        self.producer: ProducerIdentity | None = None if is_idempotent else NO_IDENTITY
        """The identity that numbers the batches; None until a broker has given an id."""

    def number(self, state: PartitionState, wire: WireBatch) -> None:
        """Give a batch the next numbers of its partition."""
        if not self.is_idempotent:
            return
        wire.producer = state.producer
        wire.base_sequence = state.sequence
        wire.encoded = None
        state.sequence = (state.sequence + len(wire)) & _MASK

    def renumber(self, state: PartitionState) -> None:
        """Begin a new epoch where one is needed, or was begun elsewhere; not before all that flies has come back."""
        if not self.is_idempotent or state.flying:
            return
        is_behind = state.producer != self.producer
        if state.needs_epoch:
            if not is_behind:
                if self.is_transactional:
                    return
                self._end_epoch()
        elif not is_behind or state.resend:
            return  # what is to be sent again keeps its numbers, of whichever epoch
        if self.producer is None:
            return
        state.needs_epoch = False
        state.producer = self.producer
        state.sequence = 0
        state.is_known = False
        for wire in state.resend:
            self.number(state, wire)

    def _end_epoch(self) -> None:
        if self.producer is not None:
            identity, epoch = self.producer
            self.producer = ProducerIdentity(identity, epoch + 1) if epoch < _LAST_EPOCH else None

    def take_back(self, wire: WireBatch) -> None:
        """A batch that was never sent is given up: what follows, if none of it was sent either, moves up."""
        state = wire.owner
        if not self.is_idempotent or wire.was_sent or wire.producer != state.producer or state.needs_epoch:
            return
        if any(self._is_after(other, wire) for other in state.flying):
            return
        later = [other for other in state.resend if self._is_after(other, wire)]
        if any(other.was_sent for other in later):
            return
        state.sequence = wire.base_sequence
        for other in later:
            self.number(state, other)

    def _is_after(self, wire: WireBatch, other: WireBatch) -> bool:
        return (
            wire.producer == other.producer
            and 0 < (wire.base_sequence - other.base_sequence) & _MASK < _HALF_A_TURN
        )

    def is_first(self, wire: WireBatch) -> bool:
        """Whether nothing of its partition that is numbered before it is still on its way."""
        state = wire.owner
        return not any(self._is_after(wire, other) for other in (*state.flying, *state.resend))

    def in_order(self, wires: list[WireBatch]) -> Iterable[WireBatch]:
        """The batches of a partition in the order of their numbers, which may have wrapped round among them."""
        if not self.is_idempotent:
            return wires
        origin = wires[0].base_sequence - _HALF_A_TURN
        return sorted(wires, key=lambda wire: (wire.base_sequence - origin) & _MASK)

    def halved(self, wire: WireBatch) -> list[WireBatch]:
        """Two batches in place of one that is too large; together they have just its numbers."""
        if len(wire.batches) > 1:
            middle = len(wire.batches) // 2
            parts = [wire.batches[:middle], wire.batches[middle:]]
        else:
            parts = [[half] for half in wire.batches[0].split()]
        halves = [WireBatch(wire.owner, part) for part in parts]
        sequence = wire.base_sequence
        for half in halves:
            half.producer = wire.producer
            half.was_sent, half.is_in_doubt = wire.was_sent, wire.is_in_doubt
            half.base_sequence = sequence
            if self.is_idempotent:
                sequence = (sequence + len(half)) & _MASK
        return halves
