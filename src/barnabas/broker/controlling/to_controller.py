"""Asks the controller: for the broker itself, and for clients that sent it what only the controller decides.

Any broker takes any admin request. The router hands those that `by_controller` marks to `forward`, unless this broker
is the controller or the request comes from another broker, which knows better than to be sent round in circles. A
controller that changes meanwhile is waited for, within the request's time.

Always holds: what may have been carried out is not asked for twice; its client is told that the outcome is not known.
"""

import asyncio
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from barnabas.broker.peers.peer import PeerLost
from barnabas.cluster.controller import WantedTopic, create_topic
from barnabas.errors import Code, Refused
from barnabas.types import ProducerId
from barnabas.wire.codec import Message
from barnabas.wire.messages.producers import AllocateProducerIdsRequest
from barnabas.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

PURPOSE = "forward"
TIMEOUT_MS = 30_000
PAUSE_S = 0.05
VISIBLE_S = 2.0
"""How long an answer waits until what it tells of is known here, too: longer only where the controller is slow."""


class ToController:
    """The broker's way to the controller."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    async def forward(self, request: Message) -> Any:
        """The controller's answer to a client's request, once this broker has heard of the outcome."""
        if isinstance(request, DeleteTopicsRequest) and request.topic_names:
            # Brokers speak the newest version, which names topics elsewhere than versions before 6 do.
            states = [DeleteTopicState(name) for name in request.topic_names]
            request = DeleteTopicsRequest(states, timeout_ms=request.timeout_ms)
        timeout_ms = getattr(request, "timeout_ms", 0)
        response = await self.ask(request, timeout_ms if timeout_ms > 0 else TIMEOUT_MS)
        if isinstance(response, CreateTopicsResponse):
            await self._until_known([row.name for row in response.topics if not row.error_code])
        return response

    async def create_topic(self, wanted: WantedTopic) -> None:
        """Have a topic made; raises Refused."""
        broker = self._broker
        if broker.metadata.is_controller:
            await broker.metadata.change(lambda image: create_topic(image, wanted, broker.config))
            return
        request = CreateTopicsRequest([_creatable(wanted)], TIMEOUT_MS)
        response: CreateTopicsResponse = await self.ask(request, TIMEOUT_MS)
        for row in response.topics:
            if row.error_code:
                raise Refused(Code.of(row.error_code), row.error_message)
        await self._until_known([wanted.name])

    async def producer_ids(self) -> ProducerId:
        """The first of a block of producer ids that are this broker's to give."""
        broker = self._broker
        answer = await self.ask(AllocateProducerIdsRequest(broker.id, broker.epoch), TIMEOUT_MS)
        if answer.error_code:
            raise Refused(Code.of(answer.error_code))
        return ProducerId(answer.producer_id_start)

    async def ask(self, request: Message, timeout_ms: int) -> Any:
        """The controller's answer; waits for another controller where there is none. Raises Refused."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while (left_s := deadline - loop.time()) > 0:
            answer = await self._asked(request, left_s)
            if answer is not None:
                return answer
            await asyncio.sleep(PAUSE_S)
        raise Refused(Code.REQUEST_TIMED_OUT, f"No controller was found in {timeout_ms} ms.")

    async def _asked(self, request: Message, seconds: float) -> Any:
        """The answer of the broker that we take for the controller; None where another one is, or none."""
        image = self._broker.metadata.image
        controller = image.brokers.get(image.controller)
        if controller is None:
            return None
        # Also where that is this broker itself by now: it is asked like any other, and answers once it has the chair.
        peer = self._broker.peers.get(controller, PURPOSE)
        try:
            answer = await peer.ask(request, round(seconds * 1000))
        except PeerLost as lost:
            if lost.is_refused:
                return None
            raise Refused(
                Code.REQUEST_TIMED_OUT, f"The controller gave no answer; it may still be done. {lost}"
            ) from lost
        return None if says(answer, Code.NOT_CONTROLLER) else answer

    async def _until_known(self, topics: list[str]) -> None:
        await self._broker.metadata.until(
            lambda image: all(name in image.topics for name in topics), VISIBLE_S
        )


def says(answer: Any, code: Code) -> bool:
    """Whether an answer, or a row of it, has this error code."""
    if isinstance(answer, list):
        return any(says(row, code) for row in answer)
    if not is_dataclass(answer):
        return False
    if getattr(answer, "error_code", 0) == code:
        return True
    rows = (getattr(answer, field.name) for field in fields(answer))
    return any(says(row, code) for row in rows if isinstance(row, list))


def _creatable(wanted: WantedTopic) -> CreatableTopic:
    return CreatableTopic(
        wanted.name,
        wanted.partitions,
        wanted.replication_factor,
        [CreatableReplicaAssignment(index, list(brokers)) for index, brokers in wanted.assignment.items()],
        [CreatableTopicConfig(name, value) for name, value in wanted.configs.items()],
    )
