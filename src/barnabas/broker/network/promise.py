"""An answer that is still to come. Its callbacks run on the spot when it is given.

Made by handlers that park a request; the connection waits for it. It has what a connection needs of an asyncio
future, which would call back only on the next turn of the loop: a fetch that waits for a produce saves two of them.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """Mutable: given once, or cancelled."""

    __slots__ = ("_answer", "_callbacks", "_cancelled", "_done")

    def __init__(self) -> None:
        self._answer: T | None = None
        self._done = False
        self._cancelled = False
        self._callbacks: list[Callable[[Any], None]] = []

    def give(self, answer: T) -> None:
        """The answer is here; a second one, or one after a cancellation, is dropped."""
        if not self._done:
            self._answer = answer
            self._end()

    def cancel(self) -> None:
        if not self._done:
            self._cancelled = True
            self._end()

    def _end(self) -> None:
        self._done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[Any, None, T]:
        future = asyncio.get_running_loop().create_future()
        self.add_done_callback(lambda _: None if future.done() else future.set_result(None))
        yield from future
        return self.result()

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return self._cancelled

    def result(self) -> T:
        assert self._done
        return self._answer  # type: ignore[return-value]
