"""Owns the broker's picture of the cluster, and the one way to change it.

Handlers read `image`. On the controller a change is decided by pure functions, made to last by the store off the event
loop, followed by the replicas, and only then visible and announced. What changes by itself, as when a broker comes or
goes, is heard of from the store and followed in the same way; what the controller has to do about it (`Chair`) is one
more change. Any other broker hears what the controller announces, and of settings from its store. One change at a time,
and one that has begun goes on to its end, whether its client is still there or not: half of it would be a topic that is
in the store and nowhere else.

A store that finds no room refuses the change, and the next one may work. A store that fails ends the broker, as in
Kafka: it could make no topic and give no producer an id, and whether the last change lasts is not known.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from barnabas.cluster.image import (
    BrokersConfigured,
    Change,
    ClusterImage,
    ControllerElected,
    ProducerIdsTaken,
    TopicConfigured,
)
from barnabas.cluster.store import Deposed, Event, OutcomeUnknown, Stale, Store, StoreFailed
from barnabas.errors import BarnabasError, Code, Refused, reason_of
from barnabas.types import ProducerId

PRODUCER_ID_BLOCK = 1000
"""Producer ids that are taken from the store at once. A restart wastes the rest; it never gives an id twice."""

log = logging.getLogger("barnabas.cluster")

T = TypeVar("T")

Decision = Callable[[ClusterImage], Sequence[Change]]
Hearing = Callable[[ClusterImage], ClusterImage]
"""What an announcement of the controller makes of an image; raises Refused where it is out of date."""


class Chair(Protocol):
    """What a controller does besides what it is asked for."""

    def react(self, before: ClusterImage | None, image: ClusterImage) -> Sequence[Change]:
        """What is to be done about the difference; before is None for a controller that has just begun."""

    def announce(self, image: ClusterImage) -> None:
        """Tell the other brokers."""


class Metadata:
    """The current image, and changes to it. A broker that `is_alone` has the chair for good, and nothing to tell."""

    def __init__(
        self,
        store: Store,
        follow: Callable[[ClusterImage], Awaitable[None]],
        *,
        on_failure: Callable[[BarnabasError], None],
        is_alone: bool = True,
        owed: Sequence[Change] = (),
    ) -> None:
        self.image = store.image
        self.is_controller = is_alone
        self.owed = list(owed)
        """Changes that found no room at the start: they go first with the next commit."""
        self.chair: Chair | None = None
        self.on_event: Callable[[Event], None] = lambda event: None
        """Told of everything that the store tells, on the event loop."""
        self.ask_for_producer_ids: Callable[[], Awaitable[ProducerId]] | None = None
        """Asks the controller for a block of ids; its first."""
        self._store = store
        self._follow = follow
        self._on_failure = on_failure
        self._seen = store.image.version
        """The version of the store's newest image that was followed."""
        self._reacted_to: ClusterImage | None = store.image
        """The newest image whose consequences are stored."""
        self._is_over = False
        self._changing = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._next_producer_id = self._producer_id_limit = store.image.next_producer_id
        self._loop = asyncio.get_running_loop()
        store.subscribe(self._heard_of)

    async def change(self, decide: Decision) -> None:
        """Decide on the newest image, store, follow, show. A refusal to decide changes nothing."""
        await self._alone(lambda: self._change(decide))

    async def hear(self, hearing: Hearing) -> None:
        """Follow and show what the controller announces."""
        await self._alone(lambda: self._hear(hearing))

    async def take_chair(self) -> None:
        """Decide from here on: the store sees all there is, and has the claim."""
        await self._alone(self._take_chair)

    def leave_chair(self) -> None:
        """Decide nothing any more: another broker does."""
        self.is_controller = False

    async def new_producer_id(self) -> ProducerId:
        """An id that no producer of this cluster ever had."""
        if self._next_producer_id == self._producer_id_limit and not self.is_controller:
            return await self._asked_for_producer_id()
        return await self._alone(self._new_producer_id)

    async def take_producer_ids(self) -> ProducerId:
        """The first of a block of ids, for another broker to give."""
        return await self._alone(self._take_producer_ids)

    async def follow_again(self) -> None:
        """Try once more what could not be done when the image came."""
        await self._alone(self._follow_again)

    async def settle(self) -> None:
        """Store what is owed, if there is room for it now."""
        await self._alone(lambda: self._change(lambda image: []))

    async def until(self, is_so: Callable[[ClusterImage], bool], seconds: float) -> bool:
        """Wait for an image of which something is true; False where none comes in time."""
        deadline = self._loop.time() + seconds
        while not is_so(self.image):
            shown = self._loop.create_future()
            self._waiting[shown] = None
            try:
                await asyncio.wait_for(shown, deadline - self._loop.time())
            except TimeoutError:
                return False
            finally:
                self._waiting.pop(shown, None)
        return True

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

    # What the store tells

    def _heard_of(self, event: Event) -> None:
        """Called by the store, in a thread of its own."""
        self._loop.call_soon_threadsafe(self._happened, event)

    def _happened(self, event: Event) -> None:
        if not self._is_over:
            self.on_event(event)
            self._follow_newer()

    def _follow_newer(self) -> None:
        """Follow what the store has seen, unless a change is under way: that does so when it ends."""
        if self._is_behind and not self._changing.locked() and not self._is_over:
            self.begin(self._alone(self._catch_up))

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do this in the background; `finish` waits for it, and a failure is told."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("what the store tells could not be followed: %s", error)

    @property
    def _is_behind(self) -> bool:
        return self._store.image.version > self._seen

    async def _catch_up(self) -> None:
        """Follow the newest image of the store, then show it; the controller does what is to be done about it."""
        while self._is_behind:
            image = self._store.image
            self._seen = image.version
            if not self.is_controller:
                await self._follow_settings(image)
                continue
            await self._show(image)
            await self._react()

    async def _react(self) -> None:
        """Do what is to be done about all that has happened since the last reaction that was stored."""
        image = self.image
        changes = self.chair.react(self._reacted_to, image) if self.chair is not None else ()
        try:
            if changes:
                await self._commit(changes)
        except Stale:
            return  # the newer image is followed next, and reacted to together with this one
        except Refused as refused:
            log.warning("the controller could not store what it decided: %s", refused.message)
            return
        self._reacted_to = image

    async def _follow_settings(self, seen: ClusterImage) -> None:
        """Of what a store sees that does not see all: its controller, and the settings of brokers."""
        known = self.image
        changes: list[Change] = [
            BrokersConfigured(broker, seen.broker_configs.get(broker, {}))
            for broker in sorted(known.broker_configs.keys() | seen.broker_configs.keys())
            if known.broker_configs.get(broker) != seen.broker_configs.get(broker)
        ]
        if seen.controller_epoch >= known.controller_epoch and seen.controller != known.controller:
            changes.append(ControllerElected(seen.controller, seen.controller_epoch))
        if changes:
            await self._show(known.after(changes))

    async def configured(self, name: str, configs: Mapping[str, str]) -> None:
        """A topic has other settings now, as the store of a broker tells that is told of topics by the controller."""
        if not self.is_controller:
            await self._alone(lambda: self._configure(name, configs))

    async def _configure(self, name: str, configs: Mapping[str, str]) -> None:
        topic = self.image.topics.get(name)
        if topic is not None and topic.configs != configs:
            await self._show(self.image.after([TopicConfigured(name, configs)]))

    async def _show(self, image: ClusterImage) -> None:
        """Follow an image, then let it be seen. It lasts already: others need not wait for this broker's disk."""
        if self.is_controller and self.chair is not None:
            self.chair.announce(image)
        await self._follow(image)
        self.image = image
        for shown in self._waiting:
            if not shown.done():
                shown.set_result(None)

    # What the controller announces

    async def _hear(self, hearing: Hearing) -> None:
        image = hearing(self.image)
        if image is not self.image:
            await self._show(await self._with_settings(image))

    async def _with_settings(self, image: ClusterImage) -> ClusterImage:
        """The same image, with the settings of topics that are new to us: announcements have none."""
        topics, known = image.topics, self.image.topics
        new = [name for name in sorted(image.since(self.image).topics) if _is_new(name, known, topics)]
        if not new:
            return image
        try:
            found = await self._loop.run_in_executor(None, self._store.topic_configs, new)
        except OSError as error:
            raise Refused(
                Code.BROKER_NOT_AVAILABLE, f"The metadata store cannot be read: {reason_of(error)}."
            ) from error
        given = zip(new, found, strict=True)
        return image.after([TopicConfigured(name, configs) for name, configs in given if configs])

    async def _take_chair(self) -> None:
        self.is_controller = True
        self._seen = self._store.image.version
        await self._show(self._store.image)
        self._reacted_to = None
        await self._react()
        await self._catch_up()

    # Changes

    async def _change(self, decide: Decision) -> None:
        if not self.is_controller:
            raise Refused(Code.NOT_CONTROLLER)
        while changes := [*self.owed, *decide(self.image.after(self.owed) if self.owed else self.image)]:
            try:
                await self._commit(changes)
            except Stale:
                await self._catch_up()
                continue
            self.owed.clear()
            await self._catch_up()
            return

    async def _follow_again(self) -> None:
        await self._follow(self.image)

    async def _asked_for_producer_id(self) -> ProducerId:
        assert self.ask_for_producer_ids is not None
        first = await self.ask_for_producer_ids()
        self._next_producer_id, self._producer_id_limit = first, ProducerId(first + PRODUCER_ID_BLOCK)
        return self._given_producer_id()

    async def _new_producer_id(self) -> ProducerId:
        if self._next_producer_id == self._producer_id_limit:
            first = await self._take_producer_ids()
            self._next_producer_id, self._producer_id_limit = first, ProducerId(first + PRODUCER_ID_BLOCK)
        return self._given_producer_id()

    def _given_producer_id(self) -> ProducerId:
        producer_id = self._next_producer_id
        self._next_producer_id = ProducerId(producer_id + 1)
        return producer_id

    async def _take_producer_ids(self) -> ProducerId:
        first = self.image.next_producer_id

        def take(image: ClusterImage) -> list[Change]:
            nonlocal first
            first = image.next_producer_id
            return [ProducerIdsTaken(ProducerId(first + PRODUCER_ID_BLOCK))]

        await self._change(take)
        return first

    async def _commit(self, changes: Sequence[Change]) -> None:
        """Store changes that were decided on the image that is shown."""
        try:
            await self._loop.run_in_executor(None, self._store.commit, changes, self._seen)
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


def _is_new(name: str, known: Mapping[str, Any], topics: Mapping[str, Any]) -> bool:
    return name in topics and (name not in known or known[name].id != topics[name].id)
