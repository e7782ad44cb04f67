"""What Admin asks of transaction coordinators, and of partitions in which a transaction hangs.

A transaction hangs when it is open in a partition and no coordinator knows of it: only clients and brokers before
KIP-890 can leave one behind. Readers of committed records do not get past it, so it has to be aborted there by hand.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.client.admin.leaders import ActiveProducer, describe_producers
from barnabas.client.network.failures import check
from barnabas.client.network.network import CoordinatorKind
from barnabas.client.network.routing import Cluster
from barnabas.errors import Code, Refused
from barnabas.types import Millis, Offset, ProducerId, TopicPartition
from barnabas.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.wire.messages.txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

FENCING_TIMEOUT_MS = 60_000
"""The transaction timeout that a producer is fenced with; it never begins a transaction."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, and the broker that coordinates it."""

    id: str
    coordinator: int
    producer_id: ProducerId
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator knows it. `started` is None where no transaction was open yet.

    `partitions` are those of an open transaction, or of one that is being ended those without a marker.
    """

    id: str
    coordinator: str
    state: str
    producer_id: ProducerId
    epoch: int
    timeout_ms: int
    started: Millis | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, and that no coordinator is going to end there."""

    partition: TopicPartition
    producer: ActiveProducer
    transactional_id: str | None
    """The id that the producer belongs to, where one does."""


def list_transactions(
    cluster: Cluster,
    states: Iterable[str],
    producer_ids: Iterable[int],
    longer_than_ms: int,
    pattern: str | None,
    *,
    timeout: float,
) -> list[TransactionListing]:
    """The transactional ids of all brokers, in order of their names."""
    wanted = list(states)
    request = ListTransactionsRequest(wanted, list(producer_ids), longer_than_ms, pattern)

    def ask() -> list[TransactionListing]:
        found: dict[str, TransactionListing] = {}
        for broker in cluster.brokers():
            answer = cluster.broker(broker.id).call(request, ListTransactionsResponse)
            check(answer.error_code, f"Transactions of broker {broker.id}")
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise Refused(Code.INVALID_REQUEST, f"Transactions have no such state: {unknown}.")
            for row in answer.transaction_states:
                found[row.transactional_id] = TransactionListing(
                    row.transactional_id, broker.id, ProducerId(row.producer_id), row.transaction_state
                )
        return [found[name] for name in sorted(found)]

    return cluster.retry(ask, timeout=timeout)


def describe_transaction(
    cluster: Cluster, transactional_id: str, *, timeout: float
) -> TransactionDescription:
    def ask() -> TransactionDescription:
        coordinator = cluster.coordinator(transactional_id, CoordinatorKind.TRANSACTION)
        request = DescribeTransactionsRequest([transactional_id])
        (row,) = coordinator.call(request, DescribeTransactionsResponse).transaction_states
        check(row.error_code, f"Transactional id {transactional_id!r}")
        return TransactionDescription(
            row.transactional_id,
            coordinator.address,
            row.transaction_state,
            ProducerId(row.producer_id),
            row.producer_epoch,
            row.transaction_timeout_ms,
            Millis(row.transaction_start_time_ms) if row.transaction_start_time_ms >= 0 else None,
            tuple(TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions),
        )

    return cluster.retry(ask, timeout=timeout)


def fence_producer(cluster: Cluster, transactional_id: str, *, timeout: float) -> None:
    """Be the next producer of a transactional id, for as long as it takes to be known as such."""
    describe_transaction(cluster, transactional_id, timeout=timeout)
    request = InitProducerIdRequest(transactional_id, FENCING_TIMEOUT_MS)

    def ask() -> None:
        coordinator = cluster.coordinator(transactional_id, CoordinatorKind.TRANSACTION)
        answer = coordinator.call(request, InitProducerIdResponse)
        check(answer.error_code, f"Transactional id {transactional_id!r}")

    cluster.retry(ask, timeout=timeout)


def find_hanging(
    cluster: Cluster, partitions: Iterable[TopicPartition], open_for_ms: int, *, timeout: float
) -> list[HangingTransaction]:
    """Compare what partitions have open with what coordinators know of."""
    oldest = time.time() * 1000 - open_for_ms
    found = describe_producers(cluster, partitions, timeout=timeout)
    suspects = [
        (partition, producer)
        for partition, producers in sorted(found.items())
        for producer in producers
        if producer.transaction_start is not None and producer.last_timestamp <= oldest
    ]
    if not suspects:
        return []
    ids = {producer.id for _, producer in suspects}
    listed = list_transactions(cluster, (), ids, -1, None, timeout=timeout)
    names = {row.producer_id: row.id for row in listed}
    known = {name: describe_transaction(cluster, name, timeout=timeout) for name in set(names.values())}
    hanging = []
    for partition, producer in suspects:
        name = names.get(producer.id)
        if name is None or partition not in known[name].partitions:
            hanging.append(HangingTransaction(partition, producer, name))
    return hanging


def abort_hanging(cluster: Cluster, partition: TopicPartition, start_offset: int, *, timeout: float) -> None:
    """Write the marker that ends the transaction which begins at an offset of a partition."""
    (producers,) = describe_producers(cluster, [partition], timeout=timeout).values()
    there = [each for each in producers if each.transaction_start == Offset(start_offset)]
    if not there:
        raise Refused(
            Code.INVALID_TXN_STATE,
            f"Partition {partition} has no open transaction from offset {start_offset} on.",
        )
    (producer,) = there
    marker = WritableTxnMarker(
        producer.id,
        producer.epoch,
        False,
        [WritableTxnMarkerTopic(partition.topic, [partition.partition])],
        max(producer.coordinator_epoch, 0),
    )

    def ask() -> None:
        leader = cluster.leader_of(partition)
        answer = leader.call(WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse)
        for topic in answer.markers[0].topics:
            for row in topic.partitions:
                check(row.error_code, f"Partition {partition}")

    cluster.retry(ask, timeout=timeout)
