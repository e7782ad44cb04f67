"""Owns when which group wants to be looked at. Called by `coordinator`.

A group's deadline moves on with every heartbeat. It is entered here only when it comes earlier than the one that is
here already: the entry is then early, never late, and a heartbeat costs nothing.
"""

from heapq import heappop, heappush

from barnabas.coordinator.effects import NEVER


class Timetable:
    """Mutable: one moment a group."""

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        """What `_at` does not agree with is out of date."""

    @property
    def first(self) -> int:
        """Never later than the first entry; NEVER where there is none."""
        return self._heap[0][0] if self._heap else NEVER

    def enter(self, name: str, at: int) -> None:
        if at < self._at.get(name, NEVER):
            self._at[name] = at
            heappush(self._heap, (at, name))

    def due(self, now: int) -> list[str]:
        """Take out the names whose time has come."""
        names = []
        while self._heap and self._heap[0][0] <= now:
            at, name = heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                names.append(name)
        return names
