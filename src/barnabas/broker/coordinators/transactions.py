"""Owns the transaction coordinators of this broker: one for each partition of `__transaction_state` that it leads.

Handlers ask a transactional id's coordinator here (`ask`); partitions have their producers verified (`verify`), by a
coordinator here or on another broker. How coordinators come, load and go is in `coordinators`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.broker.coordinators.coordinators import Coordinators, InternalTopic, TopicShape
from barnabas.broker.peers.peer import PeerLost
from barnabas.errors import Code, Refused
from barnabas.types import ProducerId, TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker
    from barnabas.broker.coordinators.host import CoordinatorHost
    from barnabas.broker.coordinators.markers import MarkerSender
    from barnabas.coordinator.transactions.coordinator import TransactionCoordinator

    TransactionCoordinators: TypeAlias = Coordinators[TransactionCoordinator]
else:
    TransactionCoordinators = Coordinators

STATE_TOPIC = InternalTopic(
    "__transaction_state",
    lambda config: TopicShape(
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        config.transaction_state_log_segment_bytes,
        config.transaction_state_log_min_isr,
    ),
)

VERIFYING = "transactions"
VERIFY_MS = 10_000
"""How long another broker may take to verify partitions."""


def _load() -> Any:
    import_module("barnabas.broker.coordinators.markers")
    import_module("barnabas.broker.handlers.txn_markers")
    return import_module("barnabas.coordinator.transactions.coordinator")


class Transactions(TransactionCoordinators):
    """Mutable: the coordinators of transactions."""

    def __init__(self, broker: "Broker") -> None:
        super().__init__(broker, STATE_TOPIC, _load)
        self._sender: MarkerSender | None = None

    async def stop(self) -> None:
        await super().stop()
        if self._sender is not None:
            await self._sender.stop()

    def send(self, host: "CoordinatorHost[TransactionCoordinator]", what: Any) -> None:
        if self._sender is None:
            from barnabas.broker.coordinators.markers import MarkerSender

            self._sender = MarkerSender(self._broker)
        self._sender.send(host, what)

    # Asking a coordinator that is here

    async def ask(self, request: Any) -> Any:
        """The answer to one of `coordinator.transactions.requests`. Raises Refused."""
        from barnabas.coordinator.transactions.requests import NEEDS_PRODUCER_ID

        answer = await self._answer(request)
        if answer is NEEDS_PRODUCER_ID:
            fresh = await self._broker.metadata.new_producer_id()
            answer = await self._answer(request._replace(fresh_id=fresh))
        return answer

    async def _answer(self, request: Any) -> Any:
        from barnabas.broker.coordinators.host import NO_CONTEXT

        outcome = self.host(request.transactional_id).ask(request, NO_CONTEXT)
        return await outcome if isinstance(outcome, asyncio.Future) else outcome

    # Verifying partitions, here or elsewhere

    async def verify(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, Code]:
        """Whether partitions are in a transaction, after putting them into it with `add`: see `Verifier`."""
        try:
            coordinator = await self.find(transactional_id)
            if coordinator == self._broker.id:
                return await self._verified(transactional_id, producer_id, epoch, partitions, add=add)
            return await self._verified_by(
                coordinator, transactional_id, producer_id, epoch, partitions, add=add
            )
        except PeerLost:
            return dict.fromkeys(partitions, Code.NETWORK_EXCEPTION)
        except Refused as refused:
            return dict.fromkeys(partitions, refused.code)

    async def _verified(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, Code]:
        from barnabas.coordinator.transactions.requests import EPOCH_A_TRANSACTION, Add, Verify
        from barnabas.coordinator.transactions.transaction import Producer

        producer, wanted = Producer(producer_id, epoch), frozenset[tuple[str, int]](partitions)
        if add:
            await self._answer(Add(transactional_id, producer, wanted, EPOCH_A_TRANSACTION))
            return dict.fromkeys(partitions, Code.NONE)
        missing = await self._answer(Verify(transactional_id, producer, wanted))
        return {tp: Code.TRANSACTION_ABORTABLE if tp in missing else Code.NONE for tp in partitions}

    async def _verified_by(
        self,
        coordinator: int,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, Code]:
        from barnabas.wire.messages.transactions import (
            AddPartitionsToTxnRequest,
            AddPartitionsToTxnTopic,
            AddPartitionsToTxnTransaction,
        )

        there = self._broker.metadata.image.brokers.get(coordinator)  # type: ignore[call-overload]
        if there is None:
            raise Refused(Code.COORDINATOR_NOT_AVAILABLE)
        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        rows = [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()]
        one = AddPartitionsToTxnTransaction(transactional_id, producer_id, epoch, not add, rows)
        peer = self._broker.peers.get(there, VERIFYING)
        answer = await peer.ask(AddPartitionsToTxnRequest([one]), VERIFY_MS)
        if answer.error_code:
            raise Refused(Code.of(answer.error_code))
        return {
            TopicPartition(topic.name, row.partition_index): Code.of(row.partition_error_code)
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for row in topic.results_by_partition
        }

    # For metrics, from any thread

    def states(self) -> list[str]:
        """The state of each transactional id here."""
        return [one.state.shown for each in self.machines() for one in list(each.transactions.values())]
