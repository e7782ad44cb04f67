"""An event loop whose time is made up: when there is nothing to do, it is as late as the next thing to be done.

What would run in other threads runs in this one, a moment later. The same calls give the same run, to the last step.
Descriptors are served as by any loop; a simulation has no others than those of socket pairs.
"""

import asyncio
import selectors
import warnings
from asyncio.events import Handle, TimerHandle
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from random import Random
from typing import Any

from barnabas.testing.simulation.lives import CURRENT, Life

SECONDS_PER_CALL = 0.003
"""The longest that a call in a thread of its own takes."""


class Idle(Exception):
    """There is nothing left that could ever happen."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Mutable: what happens next, and when."""

    def __init__(self, random: Random) -> None:
        self._now = 0.0
        self._random = random
        self._readers_of: dict[int, Life] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        """All of them: one that is collected runs what it has to do in the end, which no dead process does."""
        super().__init__(_Selector(self))
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def is_silent(self, descriptor: int) -> bool:
        """Whether what listens to a descriptor is paused: then it is as if nothing had come."""
        life = self._readers_of.get(descriptor)
        return life is not None and life.is_paused

    # What belongs to a life runs as long as it lasts

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        context = copy_context() if context is None else context
        life = context.get(CURRENT)
        if life is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(life.run, callback, args, context, context=context)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        context = copy_context() if context is None else context
        life = context.get(CURRENT)
        if life is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, life.run, callback, args, context, context=context)

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        super().add_reader(fd, *self._owned(fd, callback, args))

    def add_writer(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        super().add_writer(fd, *self._owned(fd, callback, args))

    def _owned(self, fd: Any, callback: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        self._disown(fd)
        life = CURRENT.get()
        if life is None:
            return (callback, *args)
        descriptor = _number(fd)
        life.descriptors.add(descriptor)
        self._readers_of[descriptor] = life
        return life.run, callback, args, copy_context()

    def remove_reader(self, fd: Any) -> bool:
        self._disown(fd)
        return super().remove_reader(fd)

    def _disown(self, fd: Any) -> None:
        """A number that is used again may be another process's, or the network's."""
        descriptor = _number(fd)
        life = self._readers_of.pop(descriptor, None)
        if life is not None:
            life.descriptors.discard(descriptor)

    # No threads

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        future = self.create_future()
        self.call_later(self._random.random() * SECONDS_PER_CALL, _call, future, func, args)
        return future

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
        self._tasks.append(task)
        return task

    def bury(self) -> None:
        """Let go of all that was begun and never ended, quietly."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with suppress(BaseException):
                        task.get_coro().close()
            self._tasks.clear()


def _number(fd: Any) -> int:
    return fd if isinstance(fd, int) else fd.fileno()


def _call(future: "asyncio.Future[Any]", func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:
        future.set_exception(error)


class _Selector(selectors.BaseSelector):
    """Looks at descriptors without waiting; time passes only while none has anything to say."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = [event for event in self._real.select(0) if not self._loop.is_silent(event[0].fd)]
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Idle
        self._loop.advance(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()
