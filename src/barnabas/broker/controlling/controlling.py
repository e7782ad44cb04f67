"""This broker's part in controlling the cluster: it claims the chair when that is empty, and leaves it when it is lost.

Owned by the broker, told of what happens by `metadata`. Decisions are pure (`cluster.reactions`, `cluster.isr`); here
are the facts that they need besides the image: brokers that stop, partitions that brokers cannot serve, and brokers
whose process is proven dead though their session has not ended. A proof is acted on at once, for safety rests on epochs
and not on sessions: a broker that was given up wrongly finds itself fenced, answers, and is taken back.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.controlling.announcer import Announcer
from barnabas.cluster.deciding import Decided, Decision, Facts
from barnabas.cluster.elections import ElectionType
from barnabas.cluster.hosted import HostedState
from barnabas.cluster.image import NO_BROKER, BrokerImage, Change, ClusterImage, ControllerEpoch
from barnabas.cluster.isr import Granted, alter_partitions
from barnabas.cluster.reactions import (
    balanced,
    elect_leaders,
    give_way,
    let_stop,
    lose,
    reactions,
    settle,
    still_led,
)
from barnabas.cluster.reassignment import alter_reassignments
from barnabas.cluster.store import (
    ClaimLost,
    DirectoryFailed,
    ElectionWanted,
    Event,
    OutcomeUnknown,
    ReassignmentWanted,
    Registered,
    Store,
    TopicSettings,
    Update,
)
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.messages.controlling import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    TopicWithoutRoom,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

ANNOUNCED_S = 0.5
"""How long the answer to a change waits until all brokers know of it: one that hangs holds nothing up for longer."""
AGAIN_S = 0.5
"""How long it takes until a decision that could not be stored is made anew."""
WATCH = "watch"

log = logging.getLogger("barnabas.controller")

Decide = Callable[[ClusterImage], Decision]


class Controlling:
    """Mutable: whether this broker is the controller, and what it knows as such. It is the `Chair` of metadata."""

    def __init__(self, broker: "Broker", store: Store) -> None:
        self.facts = Facts(broker.config.topic_defaults)
        self._hosted = HostedState()
        self._broker = broker
        self._store = store
        self._announcer: Announcer | None = None
        self._balancing: asyncio.Task[None] | None = None
        self._is_claiming = self._claims_again = False
        self._watched: BrokerImage | None = None
        self._is_over = False

    async def start(self) -> None:
        """Claim the chair, if it is empty."""
        await self._claim()

    def stop(self) -> None:
        self._is_over = True
        self._let_go()

    async def announced(self) -> None:
        """Come back when the other brokers know what this one does, or the time is up."""
        if self._announcer is not None:
            await self._announcer.finish(ANNOUNCED_S)

    def happened(self, event: Event) -> None:
        """The store tells of something that concerns more than the image."""
        metadata = self._broker.metadata
        match event:
            case Update(image):
                if image.controller == NO_BROKER and not metadata.is_controller:
                    # One that came during a claim may be what became of it, where its answer was lost.
                    self._claims_again = self._is_claiming
                    metadata.begin(self._claim())
            case ClaimLost(epoch):
                self._deposed(epoch)
            case TopicSettings(name, configs):
                metadata.begin(metadata.configured(name, configs))
            case Registered(epoch):
                self._broker.reborn(epoch)
            case DirectoryFailed(broker):
                # It answers for each of its partitions, and says which ones it has no longer.
                if self._announcer is not None:
                    self._announcer.tell_again(broker)
            case ReassignmentWanted(wishes):
                self._soon(lambda image: _wished(alter_reassignments(image, wishes, self.facts)))
            case ElectionWanted(partitions):
                kind = ElectionType.PREFERRED
                self._soon(lambda image: _wished(elect_leaders(image, kind, partitions, self.facts)))

    # The chair

    async def _claim(self, over: BrokerId | None = None) -> None:
        broker = self._broker
        if self._is_claiming or broker.metadata.is_controller:
            return
        self._is_claiming = True
        try:
            loop = asyncio.get_running_loop()
            epoch = await loop.run_in_executor(None, self._store.claim, broker.id, over)
            if epoch is not None:
                await self._take_chair(epoch)
        except (OSError, BarnabasError) as error:
            # Another attempt comes with the next image of the store.
            log.warning("broker %d could not become the controller: %s", broker.id, error)
        finally:
            self._is_claiming = False
            if self._claims_again:
                self._claims_again = False
                broker.metadata.begin(self._claim())

    async def _take_chair(self, epoch: ControllerEpoch) -> None:
        broker = self._broker
        log.info("broker %d is the controller now, in epoch %d", broker.id, epoch)
        self.facts = Facts(broker.config.topic_defaults)
        self._announcer = Announcer(broker.id, broker.peers, self._proven, self._lost)
        self._balancing = asyncio.create_task(self._balance())
        await broker.metadata.take_chair()

    def _deposed(self, epoch: ControllerEpoch) -> None:
        log.info("broker %d is not the controller any more (epoch %d)", self._broker.id, epoch)
        self._broker.metadata.leave_chair()
        self._let_go()

    def _let_go(self) -> None:
        if self._announcer is not None:
            self._announcer.stop()
            self._announcer = None
        if self._balancing is not None:
            self._balancing.cancel()
            self._balancing = None

    def announce(self, image: ClusterImage) -> None:
        if self._announcer is not None:
            self._announcer.announce(image)

    # What it decides by itself

    def react(self, before: ClusterImage | None, image: ClusterImage) -> Sequence[Change]:
        """What the controller does about a change by itself."""
        self.facts.defaults = self._broker.config.topic_defaults
        self._hosted.follow(image)
        topics = image.since(before).topics
        if self._lost_here_of(topics):
            # Looked at again then: the logs of a broker that begins may not have been given roles yet.
            self._soon(lambda image: self._without(self._lost_here_of(topics), image))
        return _told(reactions(before, image, self._hosted, self.facts))

    def _lost_here_of(self, topics: Collection[str]) -> list[TopicPartition]:
        """Of its own partitions a controller knows which ones it cannot serve; others answer for theirs."""
        me, find = self._broker.id, self._broker.replicas.find
        missing = self.facts.missing.get(me, ())
        hosted = (tp for tp in self._hosted.of(me) if tp.topic in topics)
        return [tp for tp in hosted if tp not in missing and find(*tp) is None]

    def _proven(self, broker: BrokerImage, lives: bool) -> None:
        """A connection has shown that a broker's process is dead, or that it lives."""
        dead = self.facts.dead
        if lives == (dead.get(broker.id) == broker.epoch):
            if lives:
                del dead[broker.id]
            else:
                dead[broker.id] = broker.epoch
            log.warning(
                "broker %d is %s", broker.id, "back" if lives else "dead: its connections are refused"
            )
            self._soon(lambda image: settle(image, self._hosted.of(broker.id), self.facts))

    def _without(self, lost: Sequence[TopicPartition], image: ClusterImage) -> Decision:
        return lose(image, self.facts, self._broker.id, lost if self._broker.has_roles else ())

    def _lost(self, broker: BrokerId, partitions: Sequence[TopicPartition]) -> None:
        """A broker has said that it cannot serve partitions: a directory has failed, or folders are gone."""
        self._soon(lambda image: lose(image, self.facts, broker, partitions))

    def lost_here(self) -> None:
        """A directory of this broker has failed: tell the controller, or be told by ourselves."""
        if not self._broker.metadata.is_controller:
            self._broker.metadata.begin(self._tell(DirectoryFailed(self._broker.id)))
            return
        find = self._broker.replicas.find
        self._lost(self._broker.id, [tp for tp in self._hosted.of(self._broker.id) if find(*tp) is None])

    async def _tell(self, notice: DirectoryFailed) -> None:
        """Tell the controller, for as long as it takes: it finds out in no other way."""
        is_logged = False
        while not self._is_over:
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._store.tell, notice)
            except (OSError, OutcomeUnknown) as error:
                if not is_logged:
                    log.error("the controller could not be told of a failed directory yet: %s", error)
                is_logged = True
                await asyncio.sleep(AGAIN_S)
            else:
                return

    async def _balance(self) -> None:
        """Give leaders back to the brokers that are to have them, now and then."""
        while True:
            config = self._broker.config
            await asyncio.sleep(config.leader_imbalance_check_interval_seconds)
            if config.auto_leader_rebalance_enable:
                await self._carry_out(self._balanced)

    def _balanced(self, image: ClusterImage) -> Decision:
        return balanced(image, self.facts, self._broker.config.leader_imbalance_per_broker_percentage)

    def _soon(self, decide: Decide) -> None:
        self._broker.metadata.begin(self._carry_out(decide))

    async def _carry_out(self, decide: Decide) -> None:
        """Decide, and store it. While the store is away it is tried again: nothing else comes back to what this broker,
        or a connection, has told."""
        chair, is_logged = self._announcer, False
        while chair is not None and chair is self._announcer:
            try:
                await self._broker.metadata.change(lambda image: _told(decide(image)))
            except Refused as refused:
                if not is_logged:
                    log.warning("what the controller decided could not be stored yet: %s", refused.message)
                is_logged = True
                await asyncio.sleep(AGAIN_S)
            else:
                return

    # What brokers ask for

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Grant a leader the in-sync replicas that it asks for, or not; let others take what it has no room for."""
        granted = Granted([], AlterPartitionResponse(), [])

        def decide(image: ClusterImage) -> Sequence[Change]:
            nonlocal granted
            granted = alter_partitions(image, request, self.facts)
            return granted.changes

        await self._broker.metadata.change(decide)
        for broker, tp in granted.found:
            self.facts.missing[broker].discard(tp)
        if request.tells_of_room:
            await self._give_way(BrokerId(request.broker_id), request.without_room)
        return granted.response

    async def _give_way(self, broker: BrokerId, without: Sequence[TopicWithoutRoom]) -> None:
        def decide(image: ClusterImage) -> Sequence[Change]:
            named = [(image.topic_by_id(each.topic_id), each.partitions) for each in without]
            full = [TopicPartition(topic.name, i) for topic, indexes in named if topic for i in indexes]
            return _told(give_way(image, self.facts, broker, full))

        await self._broker.metadata.change(decide)

    async def let_stop(self, broker: BrokerId, epoch: int) -> list[TopicPartition]:
        """Move leaders away from a broker that is about to stop; the partitions that it still leads."""
        metadata = self._broker.metadata
        if self._broker.is_alone:
            raise Refused(
                Code.INVALID_REQUEST, "The request is invalid: this broker is not one of a cluster."
            )
        await metadata.change(lambda image: _told(let_stop(image, self._hosted, self.facts, broker, epoch)))
        return still_led(metadata.image, self._hosted, self.facts, broker)

    # Watching the controller

    def watch(self, image: ClusterImage) -> None:
        """Keep an eye on the controller's process: without it, another broker takes the chair at once."""
        controller = image.brokers.get(image.controller)
        if controller is not None and controller.id == self._broker.id:
            controller = None
        if controller == self._watched:
            return
        if self._watched is not None:
            self._broker.peers.drop(self._watched.id, WATCH)
        self._watched = controller
        if controller is not None:
            self._broker.peers.get(controller, WATCH).watch(lambda: self._controller_died(controller))

    def _controller_died(self, controller: BrokerImage) -> None:
        if self._broker.metadata.image.controller == controller.id and not self._is_claiming:
            log.warning("the controller, broker %d, is dead: its connections are refused", controller.id)
            self._broker.metadata.begin(self._claim(over=controller.id))


def _wished(decided: Decided) -> Decision:
    """What was decided on the wishes of a tool, which hears of refusals from the log only."""
    refused = [f"{tp}: {outcome.message}" for tp, outcome in decided.outcomes.items() if outcome is not None]
    return Decision(decided.decision.changes, [*decided.decision.notes, *refused])


def _told(decision: Decision) -> Sequence[Change]:
    """The changes of a decision; its notes go to the log."""
    for note in decision.notes:
        log.warning("%s", note)
    return decision.changes
