"""PURE. What a producer asks the coordinators of its transactions, in which versions, and what is asked for.

Used by `transaction`, which decides when. Versions are bounds: with some a request means another thing than before.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.client.group_offsets import GroupMetadata, NextOffset
from barnabas.client.producer.partition_state import ProducerIdentity
from barnabas.errors import BarnabasError, Refused
from barnabas.types import TopicPartition
from barnabas.wire.codec import Message
from barnabas.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)


class PreparedTransaction(NamedTuple):
    """A transaction that is all stored, and waits for its end: what a decision from outside is written down with."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> "PreparedTransaction":
        """What `str` has made of one."""
        try:
            identity, epoch = map(int, text.split(":"))
        except ValueError:
            raise BarnabasError(
                f"A prepared transaction is a producer id and an epoch, such as 4000:7, not {text!r}."
            ) from None
        return cls(identity, epoch)


class Question(NamedTuple):
    """What a coordinator is asked: the transaction's, or that of a group."""

    request: Message
    answer: type[Any]
    versions: tuple[int, int]
    group: str | None = None


class OffsetsWish:
    """Offsets that are to be committed with the transaction, until the group's coordinator has taken all of them."""

    __slots__ = ("failure", "group", "is_added", "is_done", "left")

    def __init__(self, group: GroupMetadata, offsets: Mapping[TopicPartition, NextOffset]) -> None:
        self.group = group
        self.left = dict(offsets)
        self.is_added = False
        """The transaction's coordinator knows of the group."""
        self.is_done = False
        self.failure: Refused | None = None


def init_question(
    name: str, timeout_ms: int, known: ProducerIdentity, *, two_phase: bool, keeps_prepared: bool
) -> Question:
    """An identity, please: a first one, or the next epoch of one that is known."""
    request = InitProducerIdRequest(
        name, timeout_ms, known.id, known.epoch, enable2_pc=two_phase, keep_prepared_txn=keeps_prepared
    )
    # Version 6 is asked for only where it matters: Apache Kafka calls it unstable.
    return Question(request, InitProducerIdResponse, (6, 6) if two_phase else (3, 5))


def partitions_question(
    name: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> Question:
    """Batches are about to go to these partitions."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, number in partitions:
        topics.setdefault(topic, AddPartitionsToTxnTopic(topic)).partitions.append(number)
    request = AddPartitionsToTxnRequest([], name, *identity, list(topics.values()))
    return Question(request, AddPartitionsToTxnResponse, (0, 3))  # later versions are for brokers


def group_question(name: str, identity: ProducerIdentity, wish: OffsetsWish) -> Question:
    """Offsets are about to go to this group's coordinator."""
    request = AddOffsetsToTxnRequest(name, *identity, wish.group.group_id)
    return Question(request, AddOffsetsToTxnResponse, (0, 4))


def offsets_question(name: str, identity: ProducerIdentity, wish: OffsetsWish, version: int) -> Question:
    """Keep these offsets until the transaction is ended. From version 5 on the group is added with them."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (topic, number), at in wish.left.items():
        row = TxnOffsetCommitRequestPartition(number, at.offset, at.leader_epoch)
        topics.setdefault(topic, TxnOffsetCommitRequestTopic(topic)).partitions.append(row)
    group, generation, member, instance = wish.group
    request = TxnOffsetCommitRequest(
        name, group, *identity, generation, member, instance, list(topics.values())
    )
    return Question(request, TxnOffsetCommitResponse, (3, 4) if version == 1 else (5, 5), group)


def end_question(name: str, identity: ProducerIdentity, commits: bool, version: int) -> Question:
    """End it. From version 5 on the answer has the identity of the next transaction."""
    request = EndTxnRequest(name, *identity, commits)
    return Question(request, EndTxnResponse, (0, 4) if version == 1 else (5, 5))
