"""What producers and tools ask of transaction coordinators: AddPartitionsToTxn v0-5, AddOffsetsToTxn v0-4, EndTxn v0-5,
DescribeTransactions v0, ListTransactions v0-2; and TxnOffsetCommit v0-5, which goes to a group's coordinator.

AddPartitionsToTxn from version 4 on comes from other brokers, of several transactions, and may only want to know.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.calls import context, later
from barnabas.broker.coordinators.groups import OFFSETS_TOPIC
from barnabas.broker.coordinators.host import NO_CONTEXT, Author
from barnabas.broker.handlers.producers import known_to
from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.coordinator.transactions.requests import EPOCH_A_TRANSACTION, Add, Describe, End, List, Verify
from barnabas.coordinator.transactions.transaction import SHOWN, Producer, TopicIndex
from barnabas.errors import Code, Refused
from barnabas.log.transactions.verifications import ONGOING
from barnabas.types import ProducerId, TopicPartition
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
from barnabas.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

FENCED_SINCE = 2
"""The version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn from which on clients know PRODUCER_FENCED."""

BETWEEN_BROKERS_SINCE = 4
"""The version of AddPartitionsToTxn that has several transactions."""

EPOCHS_SINCE = 5
"""The version of EndTxn and TxnOffsetCommit of clients that begin each transaction with another epoch (KIP-890)."""

ABORTABLE_SINCE = {ApiKey.TXN_OFFSET_COMMIT: 4, ApiKey.END_TXN: 4}
"""The versions from which on clients know TRANSACTION_ABORTABLE."""

Codes = dict[TopicIndex, Code]


# --- partitions


def _refuse_add(
    request: AddPartitionsToTxnRequest, version: int, refused: Refused
) -> AddPartitionsToTxnResponse:
    if version >= BETWEEN_BROKERS_SINCE:
        return AddPartitionsToTxnResponse(error_code=refused.code)
    codes = dict.fromkeys(_partitions(request.v3_and_below_topics), refused.code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_rows(codes))


@handles(ApiKey.ADD_PARTITIONS_TO_TXN, _refuse_add, with_header=True)
async def add_partitions_to_txn(
    broker: "Broker", request: AddPartitionsToTxnRequest, peer: Connection, header: RequestHeader
) -> AddPartitionsToTxnResponse:
    if header.api_version >= BETWEEN_BROKERS_SINCE:
        results = [
            AddPartitionsToTxnResult(one.transactional_id, _rows(await _of_broker(broker, one)))
            for one in request.transactions
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    partitions = frozenset(_partitions(request.v3_and_below_topics))
    codes = _unknown(broker, partitions)
    if not codes:
        try:
            await broker.transactions.ask(Add(request.v3_and_below_transactional_id, producer, partitions, 0))
            codes = dict.fromkeys(partitions, Code.NONE)
        except Refused as refused:
            codes = dict.fromkeys(partitions, known_to(refused, header.api_version, FENCED_SINCE).code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_rows(codes))


def _unknown(broker: "Broker", partitions: Iterable[TopicIndex]) -> Codes:
    """Empty where there are all these partitions; otherwise none of them is added."""
    topics = broker.metadata.image.topics
    missing = {
        (name, index)
        for name, index in partitions
        if name not in topics or not 0 <= index < len(topics[name].partitions)
    }
    if not missing:
        return {}
    return {
        each: Code.UNKNOWN_TOPIC_OR_PARTITION if each in missing else Code.OPERATION_NOT_ATTEMPTED
        for each in partitions
    }


async def _of_broker(broker: "Broker", one: AddPartitionsToTxnTransaction) -> Codes:
    """What another broker wants to know, or to have added for a producer of transaction.version 2."""
    producer = Producer(one.producer_id, one.producer_epoch)
    partitions = frozenset(_partitions(one.topics))
    try:
        if not one.verify_only:
            await broker.transactions.ask(
                Add(one.transactional_id, producer, partitions, EPOCH_A_TRANSACTION)
            )
            return dict.fromkeys(partitions, Code.NONE)
        missing = await broker.transactions.ask(Verify(one.transactional_id, producer, partitions))
    except Refused as refused:
        return dict.fromkeys(partitions, refused.code)
    return {each: Code.TRANSACTION_ABORTABLE if each in missing else Code.NONE for each in partitions}


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicIndex]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _rows(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in sorted(codes.items()):
        topics.setdefault(topic, []).append(AddPartitionsToTxnPartitionResult(index, code))
    return [AddPartitionsToTxnTopicResult(topic, rows) for topic, rows in topics.items()]


# --- offsets


@handles(ApiKey.ADD_OFFSETS_TO_TXN, with_header=True)
async def add_offsets_to_txn(
    broker: "Broker", request: AddOffsetsToTxnRequest, peer: Connection, header: RequestHeader
) -> AddOffsetsToTxnResponse:
    await broker.groups.find(request.group_id)
    partition = OFFSETS_TOPIC.name, broker.groups.partition_of(request.group_id)
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        await broker.transactions.ask(Add(request.transactional_id, producer, frozenset({partition}), 0))
    except Refused as refused:
        raise known_to(refused, header.api_version, FENCED_SINCE) from refused
    return AddOffsetsToTxnResponse()


def _refuse_commit(
    request: TxnOffsetCommitRequest, version: int, refused: Refused
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(part.partition_index, refused.code)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(ApiKey.TXN_OFFSET_COMMIT, _refuse_commit, with_header=True)
async def txn_offset_commit(
    broker: "Broker", request: TxnOffsetCommitRequest, peer: Connection, header: RequestHeader
) -> TxnOffsetCommitResponse:
    if not request.group_id:
        raise Refused(Code.INVALID_GROUP_ID)
    author = await _verified_author(broker, request, header.api_version)
    # The group's coordinator may have moved while the transaction's was asked: it is looked for only now.
    outcome = broker.groups.host(request.group_id).ask(request, context(header, peer), author)
    response: TxnOffsetCommitResponse = await later(outcome)
    return response


async def _verified_author(broker: "Broker", request: TxnOffsetCommitRequest, version: int) -> Author:
    """The producer of a commit, once its transaction is known to have the group's partition. Raises Refused."""
    host = broker.groups.host(request.group_id)
    producer_id, epoch = ProducerId(request.producer_id), request.producer_epoch
    adds = version >= EPOCHS_SINCE
    verification = host.partition.verification(
        producer_id, epoch, -1, bumps_epochs=adds, now=broker.clock.now()
    )
    if verification is not ONGOING:
        tp = TopicPartition(*host.partition.tp)
        codes = await broker.transactions.verify(request.transactional_id, producer_id, epoch, [tp], add=adds)
        code = codes.get(tp, Code.NONE)
        if code is not Code.NONE:
            raise Refused(_known_code(code, version))
    return Author(producer_id, epoch, verification)


def _known_code(code: Code, version: int) -> Code:
    """What a producer is told of a transaction coordinator's no, in codes that it expects of a group's."""
    if code is Code.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE[ApiKey.TXN_OFFSET_COMMIT]:
        return Code.INVALID_TXN_STATE
    if code in (Code.NOT_COORDINATOR, Code.NETWORK_EXCEPTION, Code.CONCURRENT_TRANSACTIONS):
        return Code.COORDINATOR_LOAD_IN_PROGRESS
    return code


# --- the end


@handles(ApiKey.END_TXN, with_header=True)
async def end_txn(
    broker: "Broker", request: EndTxnRequest, peer: Connection, header: RequestHeader
) -> EndTxnResponse:
    version = EPOCH_A_TRANSACTION if header.api_version >= EPOCHS_SINCE else 0
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        following: Producer = await broker.transactions.ask(
            End(request.transactional_id, producer, request.committed, version)
        )
    except Refused as refused:
        raise known_to(refused, header.api_version, FENCED_SINCE) from refused
    return EndTxnResponse(producer_id=following.id, producer_epoch=following.epoch)


# --- looking at transactions


@handles(ApiKey.DESCRIBE_TRANSACTIONS)
async def describe_transactions(
    broker: "Broker", request: DescribeTransactionsRequest, peer: Connection
) -> DescribeTransactionsResponse:
    rows = []
    for transactional_id in request.transactional_ids:
        try:
            rows.append(await broker.transactions.ask(Describe(transactional_id)))
        except Refused as refused:
            rows.append(DescribedTransaction(refused.code, transactional_id, transaction_start_time_ms=-1))
    return DescribeTransactionsResponse(transaction_states=rows)


@handles(ApiKey.LIST_TRANSACTIONS)
async def list_transactions(
    broker: "Broker", request: ListTransactionsRequest, peer: Connection
) -> ListTransactionsResponse:
    states = frozenset(request.state_filters)
    asked = List(states & SHOWN.keys(), frozenset(request.producer_id_filters), request.duration_filter)
    rows: list[ListedTransaction] = []
    if asked.states or not states:
        for host in broker.transactions.all():
            rows += await later(host.ask(asked, NO_CONTEXT))
    if request.transactional_id_pattern:
        try:
            pattern = re.compile(request.transactional_id_pattern)
        except re.error as error:
            raise Refused(Code.INVALID_REGULAR_EXPRESSION, f"{error}") from error
        rows = [row for row in rows if pattern.fullmatch(row.transactional_id)]
    return ListTransactionsResponse(
        unknown_state_filters=sorted(states - SHOWN.keys()), transaction_states=rows
    )
