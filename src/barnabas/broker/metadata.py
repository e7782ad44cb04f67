"""Owns the broker's picture of the cluster, and the one way to change it.

Handlers read `image`; a change is decided by the pure controller, made to last by the store off the event
loop, followed by the replicas, and only then visible. One change at a time, and one that has begun goes on to its end,
whoever asked for it is still there or not: half of it would be a topic that is in the store and nowhere else.

A store that finds no room refuses the change, and the next one may work. A store that fails ends the broker, as in
Kafka: it could make no topic and give no producer an id, and whether the last change lasts is not known.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from barnabas.cluster.image import Change, ClusterImage, ProducerIdsTaken
from barnabas.cluster.store import StoreFailed
from barnabas.errors import BarnabasError, Code, Refused, reason_of
from barnabas.log.directories import passes
from barnabas.types import ProducerId

PRODUCER_ID_BLOCK = 1000
"""How many producer ids are taken from the store at once: a restart wastes the rest, a clash it cannot cause."""

log = logging.getLogger("barnabas.cluster")

T = TypeVar("T")

Decision = Callable[[ClusterImage], list[Change]]


class Store(Protocol):
    """Where the cluster's state lasts."""

    @property
    def path(self) -> str: ...
    @property
    def image(self) -> ClusterImage: ...
    def commit(self, changes: list[Change]) -> ClusterImage: ...
    def close(self) -> None: ...


class Metadata:
    """The current image, and changes to it."""

    def __init__(
        self,
        store: Store,
        follow: Callable[[ClusterImage], Awaitable[None]],
        *,
        on_failure: Callable[[BarnabasError], None],
        owed: Sequence[Change] = (),
    ) -> None:
        self.image = store.image
        self.owed = list(owed)
        """Changes that found no room at the start: they go first with the next commit."""
        self._store = store
        self._follow = follow
        self._on_failure = on_failure
        self._changing = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._next_producer_id = self._producer_id_limit = store.image.next_producer_id

    async def change(self, decide: Decision) -> None:
        """Decide on the newest image, store, follow, show. A refusal to decide changes nothing."""
        await self._alone(lambda: self._change(decide))

    async def new_producer_id(self) -> ProducerId:
        """An id that no producer of this cluster ever had."""
        return await self._alone(self._new_producer_id)

    async def follow_again(self) -> None:
        """Try once more what could not be done when the image came."""
        await self._alone(self._follow_again)

    async def settle(self) -> None:
        """Store what is owed, if there is room for it now."""
        await self._alone(lambda: self._change(lambda image: []))

    async def finish(self) -> None:
        """Come back when nothing is under way any more."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _alone(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for our turn, then do this even if we are cancelled, as those are whose client hangs up or whose time is
        up; who is cancelled before his turn has changed nothing."""
        await self._changing.acquire()
        task = asyncio.create_task(work())
        self._under_way.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._changing.release()
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # it may be that nobody is there to hear of it

    async def _change(self, decide: Decision) -> None:
        changes = [*self.owed, *decide(self.image.after(self.owed))]
        if not changes:
            return
        image = await self._commit(changes)
        self.owed.clear()
        await self._follow(image)
        self.image = image

    async def _follow_again(self) -> None:
        await self._follow(self.image)

    async def _new_producer_id(self) -> ProducerId:
        if self._next_producer_id == self._producer_id_limit:
            limit = ProducerId(self._producer_id_limit + PRODUCER_ID_BLOCK)
            await self._change(lambda image: [ProducerIdsTaken(limit)])
            self._producer_id_limit = limit
        producer_id = self._next_producer_id
        self._next_producer_id = ProducerId(producer_id + 1)
        return producer_id

    async def _commit(self, changes: list[Change]) -> ClusterImage:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._store.commit, changes)
        except OSError as error:
            log.error("cannot store a metadata change: %s", error)
            if not passes(error):
                self._on_failure(StoreFailed(self._store.path, error))
            raise Refused(
                Code.KAFKA_STORAGE_ERROR, f"The metadata store cannot write: {reason_of(error)}."
            ) from error
        except StoreFailed as failure:
            log.error("%s", failure)
            self._on_failure(failure)
            raise Refused(Code.KAFKA_STORAGE_ERROR, str(failure)) from failure
