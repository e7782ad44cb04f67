"""Owns the broker's picture of the cluster, and the one way to change it.

Handlers read `image`; a change is decided by the pure controller, made to last by the store off the event loop,
followed by the replicas, and only then visible. What changes by itself, as when a broker comes or goes, is heard of
from the store and followed in the same way. One change at a time, and one that has begun goes on to its end, whether
its client is still there or not: half of it would be a topic that is in the store and nowhere else.

A store that finds no room refuses the change, and the next one may work. A store that fails ends the broker, as in
Kafka: it could make no topic and give no producer an id, and whether the last change lasts is not known.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from barnabas.cluster.image import Change, ClusterImage, ProducerIdsTaken, Version
from barnabas.cluster.store import Deposed, Event, OutcomeUnknown, Stale, Store, StoreFailed
from barnabas.errors import BarnabasError, Code, Refused, reason_of
from barnabas.types import ProducerId

PRODUCER_ID_BLOCK = 1000
"""Producer ids that are taken from the store at once. A restart wastes the rest; it never gives an id twice."""

log = logging.getLogger("barnabas.cluster")

T = TypeVar("T")

Decision = Callable[[ClusterImage], list[Change]]


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
        self._is_over = False
        self._changing = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._next_producer_id = self._producer_id_limit = store.image.next_producer_id
        self._loop = asyncio.get_running_loop()
        store.subscribe(self._heard)

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
        """Come back when nothing is under way any more; nothing that happens from here on is followed."""
        self._is_over = True
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _alone(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for our turn, then do this to its end. A caller is cancelled when its client hangs up or its time is up:
        before its turn that changes nothing, after it the work goes on."""
        await self._changing.acquire()
        task = asyncio.create_task(work())
        self._under_way.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._changing.release()
        self._under_way.discard(task)
        # A failure is looked at here: it may have no caller left to hear of it.
        if not task.cancelled() and task.exception() is None:
            self._follow_newer()

    def _heard(self, event: Event) -> None:
        """Called by the store, in a thread of its own."""
        self._loop.call_soon_threadsafe(self._follow_newer)

    def _follow_newer(self) -> None:
        """Follow what the store has seen, unless a change is under way: that does so when it ends."""
        if self._is_behind and not self._changing.locked() and not self._is_over:
            task = asyncio.create_task(self._alone(self._catch_up))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    @property
    def _is_behind(self) -> bool:
        return self._store.image.version > self.image.version

    async def _catch_up(self) -> None:
        """Follow the newest image of the store, then show it."""
        while self._is_behind:
            image = self._store.image
            await self._follow(image)
            self.image = image

    async def _change(self, decide: Decision) -> None:
        while changes := [*self.owed, *decide(self.image.after(self.owed))]:
            try:
                await self._commit(changes, self.image.version)
            except Stale:
                await self._catch_up()
                continue
            self.owed.clear()
            await self._catch_up()
            return

    async def _follow_again(self) -> None:
        await self._follow(self.image)

    async def _new_producer_id(self) -> ProducerId:
        if self._next_producer_id == self._producer_id_limit:
            first = self.image.next_producer_id

            def take(image: ClusterImage) -> list[Change]:
                nonlocal first
                first = image.next_producer_id
                return [ProducerIdsTaken(ProducerId(first + PRODUCER_ID_BLOCK))]

            await self._change(take)
            self._next_producer_id, self._producer_id_limit = first, ProducerId(first + PRODUCER_ID_BLOCK)
        producer_id = self._next_producer_id
        self._next_producer_id = ProducerId(producer_id + 1)
        return producer_id

    async def _commit(self, changes: list[Change], version: Version) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._store.commit, changes, version)
        except OSError as error:
            log.error("cannot store a metadata change: %s", error)
            raise Refused(
                Code.KAFKA_STORAGE_ERROR, f"The metadata store cannot write: {reason_of(error)}."
            ) from error
        except StoreFailed as failure:
            log.error("%s", failure)
            self._on_failure(failure)
            raise Refused(Code.KAFKA_STORAGE_ERROR, str(failure)) from failure
        except Deposed as deposed:
            raise Refused(Code.NOT_CONTROLLER, str(deposed)) from deposed
        except OutcomeUnknown as unknown:
            raise Refused(Code.REQUEST_TIMED_OUT, str(unknown)) from unknown
