"""Owns which producers are being verified: asked after at their transaction coordinator before their first batch of a
transaction enters a partition (KIP-890). The state of the producers has one of these.

A verification counts for one transaction: it is gone as soon as a batch, or a marker, of its producer is in the log. So
an answer that comes after the transaction has ended lets nothing in. None of it lasts: after a restart, and on another
leader, a batch is verified anew.
"""

from barnabas.types import Millis


class Verification:
    """Mutable: one question to a coordinator. Which one it is tells it from a later one of the same producer."""

    __slots__ = ("asked", "bumps_epochs", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, *, bumps_epochs: bool, now: Millis) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """The smallest sequence number that was asked for: what follows it must not come first when it is refused."""
        self.bumps_epochs = bumps_epochs
        """Whether the producer begins every transaction with another epoch (transaction.version 2)."""
        self.asked = now


TRUSTED = Verification(-1, -1, bumps_epochs=False, now=Millis(-1))
"""For batches that need no verification: those of the broker itself, and all where it is switched off."""

ONGOING = Verification(-1, -1, bumps_epochs=False, now=Millis(-1))
"""For batches whose transaction was open here when they came; it must still be when they are appended."""


class Verifications:
    """Mutable: the newest of each producer."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, producer_id: int) -> Verification | None:
        return self._by_id.get(producer_id)

    def begin(
        self, producer_id: int, epoch: int, sequence: int, *, bumps_epochs: bool, now: Millis
    ) -> Verification:
        """The one under way, which knows of this batch then, or another. One of an older epoch lets nothing in."""
        found = self._by_id.get(producer_id)
        if found is None or epoch > found.epoch:
            fresh = Verification(epoch, sequence, bumps_epochs=bumps_epochs, now=now)
            self._by_id[producer_id] = fresh
            return fresh
        if epoch < found.epoch:
            return Verification(epoch, sequence, bumps_epochs=bumps_epochs, now=now)
        found.lowest_sequence = min(found.lowest_sequence, sequence)
        found.asked = now
        return found

    def pop(self, producer_id: int) -> None:
        self._by_id.pop(producer_id, None)

    def expire(self, limit: Millis) -> None:
        """Forget what was asked for before this time: its batches never came."""
        self._by_id = {key: each for key, each in self._by_id.items() if each.asked > limit}

    def clear(self) -> None:
        self._by_id.clear()
