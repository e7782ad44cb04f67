"""Owns what the members of one group told, and judges it. Filled by the readers of `group`, asked by tests.

A *take* is what one member reads of a partition between getting it and giving it away: it starts somewhere, and
commits up to somewhere. The judgement needs no order between processes: what takes committed must lie side by
side from offset 0 to the end, and every take must start where another one's commits ended. Then nothing was
skipped, and nothing that was committed was read again.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

NS = 1_000_000_000


@dataclass(slots=True)
class Take:
    """Mutable: one member at one partition."""

    member: str
    start: int
    end: int
    committed: int
    unsure: set[int] = field(default_factory=set)
    """Commits that may have come to be, though nobody was told so."""


@dataclass(slots=True)
class Ownership:
    """Mutable: from when to when a member surely had a partition."""

    member: str
    since: int
    until: int | None = None


class Ledger:
    """Mutable: grows with each line that a member tells. Waiting for what it tells is waiting for an event."""

    def __init__(self, partitions: int, session_ms: int) -> None:
        self._partitions = frozenset(range(partitions))
        self._session_ns = session_ms * 1_000_000
        self._changed = threading.Condition()
        self._owned: dict[str, set[int]] = defaultdict(set)
        self._open: dict[tuple[str, int], Take] = {}
        self._takes: dict[int, list[Take]] = defaultdict(list)
        self._ownerships: dict[int, list[Ownership]] = defaultdict(list)
        self._current: dict[tuple[str, int], Ownership] = {}
        self._generations: dict[int, dict[str, frozenset[int]]] = defaultdict(dict)
        self._lines: list[str] = []
        self.broken: list[str] = []
        self.ended: set[str] = set()
        self.refusals_are_unsure = False
        """After a crash of the broker: a commit may have been stored and its answer lost."""
        self.stumbles: Counter[str] = Counter()
        """How often a poll of Java's KIP-848 consumer failed by a race of its own threads (PositionRace.java)."""
        self.leader_changes = 0
        """How often tests have changed the leaders of partitions: each may cost a member one stumble."""

    # What members tell

    def note(self, member: str, told: dict[str, Any]) -> None:
        with self._changed:
            self._lines.append(f"{told['at'] / NS:.3f} {member} {_short(told)}")
            getattr(self, f"_{told['event']}")(member, told)
            self._changed.notify_all()

    def _assigned(self, member: str, told: dict[str, Any]) -> None:
        for partition in told["partitions"]:
            self._owned[member].add(partition)
            self._open.pop((member, partition), None)
            ownership = Ownership(member, told["at"])
            self._ownerships[partition].append(ownership)
            self._current[member, partition] = ownership
        if (generation := told.get("generation")) is not None and generation >= 0:
            self._generations[generation][member] = frozenset(self._owned[member])

    def _revoked(self, member: str, told: dict[str, Any]) -> None:
        self._give_away(member, told["partitions"], told["at"])

    def _lost(self, member: str, told: dict[str, Any]) -> None:
        # It learns of it late: others may have owned them for as long as the session lasts.
        self._give_away(member, told["partitions"], told["at"] - self._session_ns)

    def _give_away(self, member: str, partitions: Iterable[int], until: int) -> None:
        for partition in list(partitions):
            self._owned[member].discard(partition)
            self._open.pop((member, partition), None)
            ownership = self._current.pop((member, partition), None)
            if ownership is not None:
                ownership.until = max(until, ownership.since)

    def _silenced(self, member: str, told: dict[str, Any]) -> None:
        """Killed or stopped: what it owns from here on is for the coordinator to decide."""
        for partition in self._owned[member]:
            ownership = self._current.pop((member, partition), None)
            if ownership is not None:
                ownership.until = told["at"]
        if told["for_good"]:
            self._owned[member].clear()

    def _records(self, member: str, told: dict[str, Any]) -> None:
        for partition, offset in told["rows"]:
            if partition not in self._owned[member]:
                self.broken.append(f"{member} read {partition}@{offset}, which it did not own")
            take = self._open.get((member, partition))
            if take is None:
                take = self._open[member, partition] = Take(member, offset, offset, offset)
                self._takes[partition].append(take)
            elif offset != take.end:
                self.broken.append(f"{member} read {partition}@{offset} after {take.end - 1}")
            take.end = offset + 1

    def _committing(self, member: str, told: dict[str, Any]) -> None:
        for partition, offset in told["offsets"]:
            self._open[member, partition].unsure.add(offset)

    def _committed(self, member: str, told: dict[str, Any]) -> None:
        for partition, offset in told["offsets"]:
            take = self._open[member, partition]
            take.unsure.discard(offset)
            take.committed = max(take.committed, offset)

    def _refused(self, member: str, told: dict[str, Any]) -> None:
        for partition, offset in told["offsets"]:
            take = self._open.get((member, partition))
            if take is not None and not self.refusals_are_unsure:
                take.unsure.discard(offset)

    def _stumbled(self, member: str, told: dict[str, Any]) -> None:
        self.stumbles[member] += 1

    def _trouble(self, member: str, told: dict[str, Any]) -> None:
        pass

    def _left(self, member: str, told: dict[str, Any]) -> None:
        self._give_away(member, set(self._owned[member]), told["at"])

    def _gone(self, member: str, told: dict[str, Any]) -> None:
        """The process has ended and all it told is known."""
        self.ended.add(member)

    # What tests wait for

    def wait(self, look: Callable[[], bool], what: str, within: float) -> None:
        with self._changed:
            if not self._changed.wait_for(look, within):
                raise AssertionError(f"waited {within:g} s in vain for {what}; {self.state()}")

    def owned(self, member: str) -> frozenset[int]:
        with self._changed:
            return frozenset(self._owned[member])

    def is_shared_by(self, members: Iterable[str]) -> bool:
        """Each partition has one owner, each of these members has some, and nobody else has any."""
        everybody = sum(len(share) for share in self._owned.values())
        return everybody == len(self._partitions) and self.is_owned_by(members)

    def is_owned_by(self, members: Iterable[str]) -> bool:
        """Each partition has one owner among these members, and each of them has some."""
        shares = [self._owned[member] for member in members]
        count = sum(len(share) for share in shares)
        return all(shares) and count == len(self._partitions) and self._partitions == set().union(*shares)

    def has_committed(self, ends: list[int]) -> bool:
        return all(
            any(take.committed == end or (end in take.unsure) for take in self._takes[partition])
            for partition, end in enumerate(ends)
            if end
        )

    def committed(self) -> int:
        """How many records are known to be committed, over all partitions."""
        with self._changed:
            return sum(
                max((take.committed for take in self._takes[partition]), default=0)
                for partition in self._partitions
            )

    def state(self) -> str:
        owned = {member: sorted(share) for member, share in self._owned.items() if share}
        return f"they own {owned}; broken: {self.broken[:5]}; last lines:\n" + "\n".join(self._lines[-60:])

    # Judging

    def judge(self, ends: list[int]) -> None:
        """Holds the whole story to the promises."""
        with self._changed:
            faults = list(self.broken)
            for partition, end in enumerate(ends):
                faults += self._faults_of_takes(partition, end)
                faults += self._faults_of_ownership(partition)
            faults += self._faults_of_generations()
            faults += [
                f"{member} stumbled {times} times over {self.leader_changes} changes of leaders"
                for member, times in self.stumbles.items()
                if times > self.leader_changes
            ]
            assert not faults, "\n".join(faults[:10]) + "\n" + self.state()

    def _faults_of_takes(self, partition: int, end: int) -> list[str]:
        takes = self._takes[partition]
        for take in takes:
            _make_sure(take, takes, end)
        at, faults = 0, []
        for take in sorted((t for t in takes if t.committed > t.start), key=lambda t: t.start):
            if take.start != at:
                what = "was skipped" if take.start > at else "was committed and read again"
                low, high = sorted((take.start, at))
                faults.append(f"{partition}@{low}..{high - 1} {what} by {take.member}: {takes}")
            at = max(at, take.committed)
        if at != end:
            faults.append(f"{partition} ends at {end}, but is committed up to {at}: {takes}")
        edges = {0, *(take.committed for take in takes if take.committed > take.start)}
        faults += [
            f"{partition} was taken inside what was committed: {t}" for t in takes if t.start not in edges
        ]
        return faults

    def _faults_of_ownership(self, partition: int) -> list[str]:
        faults = []
        rows = sorted(self._ownerships[partition], key=lambda row: row.since)
        for one, other in pairwise(rows):
            if one.member != other.member and (one.until is None or one.until > other.since):
                late = (
                    "still has"
                    if one.until is None
                    else f"had for {(one.until - other.since) / NS:.3f} s more"
                )
                faults.append(f"{other.member} got {partition}, which {one.member} {late}")
        return faults

    def _faults_of_generations(self) -> list[str]:
        faults = []
        for generation, shares in self._generations.items():
            owners: dict[int, list[str]] = defaultdict(list)
            for member, share in shares.items():
                for partition in share:
                    owners[partition].append(member)
            faults += [
                f"in generation {generation} {partition} belongs to {members}"
                for partition, members in owners.items()
                if len(members) > 1
            ]
        return faults


def _make_sure(take: Take, takes: list[Take], end: int) -> None:
    """Finds out from where the next take started whether a commit without an answer came to be."""
    nexts = {other.start for other in takes if other is not take} | {end}
    if take.committed not in nexts:
        took_place = [offset for offset in take.unsure if offset > take.committed and offset in nexts]
        take.committed = max(took_place, default=take.committed)


def _short(told: dict[str, Any]) -> str:
    rows = told.get("rows")
    if rows is not None:
        return f"records {rows[0]}..{rows[-1]} ({len(rows)})"
    return " ".join(str(value) for name, value in told.items() if name != "at")
