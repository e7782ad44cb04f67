"""What belongs to which process. A simulation has one event loop; each broker works in the context of its life.

`loop` asks a life before it runs anything that was begun in its context. What is over does nothing any more, whatever
it had begun; what is paused does it later, in the same order.
"""

from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

CURRENT: ContextVar["Life | None"] = ContextVar("life", default=None)
"""The life that whatever runs now belongs to; None for what is no process: the network, the test."""


class Life:
    """Mutable: one life of one process."""

    def __init__(self, loop: "asyncio.AbstractEventLoop", name: str, after_step: Callable[[], None]) -> None:
        self.name = name
        self.is_over = False
        self.is_paused = False
        self._loop = loop
        self._after_step = after_step
        self._held: list[tuple[Callable[..., object], tuple[Any, ...], Context]] = []
        self.descriptors: set[int] = set()
        """What the loop listens to for it."""

    def run(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        """Do what was begun in this life, if it still has a say."""
        if self.is_over:
            return
        if self.is_paused:
            self._held.append((callback, args, context))
            return
        try:
            callback(*args)
        finally:
            self._after_step()

    def resume(self) -> None:
        self.is_paused = False
        held, self._held = self._held, []
        for callback, args, context in held:
            self._loop.call_soon(callback, *args, context=context)

    def end(self) -> None:
        """Nothing that was begun goes on."""
        self.is_over = True
        self._held.clear()
        for descriptor in list(self.descriptors):
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
        self.descriptors.clear()
