"""Owns the offsets that groups have committed in transactions which have not ended. Called by `coordinator`.

They are shown to no reader: a commit of the transaction makes them the group's, an abort forgets them. Where a plain
commit of the same partition comes later in the log, that one counts.
"""

from barnabas.coordinator.records import OffsetCommitKey, OffsetCommitValue


class PendingOffsets:
    """Mutable: by producer. A value of None was overtaken: it waits only for its transaction's end."""

    __slots__ = ("_by_producer", "_waiting")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetCommitKey, OffsetCommitValue | None]] = {}
        self._waiting: dict[str, dict[OffsetCommitKey, int]] = {}
        """How many producers have an offset pending, by group and partition."""

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._waiting

    def is_pending(self, key: OffsetCommitKey) -> bool:
        return key in self._waiting.get(key.group, ())

    def stage(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """Keep an offset until its producer's transaction ends."""
        offsets = self._by_producer.setdefault(producer_id, {})
        if key not in offsets:
            waiting = self._waiting.setdefault(key.group, {})
            waiting[key] = waiting.get(key, 0) + 1
        offsets[key] = value

    def settle(self, producer_id: int) -> dict[OffsetCommitKey, OffsetCommitValue | None]:
        """The transaction of a producer has ended: what was pending of it."""
        offsets = self._by_producer.pop(producer_id, {})
        for key in offsets:
            self._forget(key)
        return offsets

    def overtake(self, key: OffsetCommitKey) -> None:
        """A plain commit of a partition has come after what is pending."""
        for offsets in self._by_producer.values():
            if key in offsets:
                offsets[key] = None

    def drop(self, key: OffsetCommitKey) -> None:
        """The offset was deleted, with all that is pending."""
        for producer_id, offsets in list(self._by_producer.items()):
            if key in offsets:
                del offsets[key]
                self._forget(key)
                if not offsets:
                    del self._by_producer[producer_id]

    def of(self, group_id: str) -> list[OffsetCommitKey]:
        """The partitions of a group with offsets pending."""
        return list(self._waiting.get(group_id, ()))

    def _forget(self, key: OffsetCommitKey) -> None:
        waiting = self._waiting[key.group]
        waiting[key] -= 1
        if not waiting[key]:
            del waiting[key]
            if not waiting:
                del self._waiting[key.group]
