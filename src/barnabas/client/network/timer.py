"""An action that waits for its time. Made by `Network.later`."""

from collections.abc import Callable


class Timer:
    """An action that waits for its time."""

    __slots__ = ("action", "at")

    def __init__(self, at: float, action: Callable[[], None]) -> None:
        self.at = at
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None

    def __lt__(self, other: "Timer") -> bool:
        return self.at < other.at
