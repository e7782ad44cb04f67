"""Decides on AlterPartition: a leader says which replicas are in sync, and the controller grants it or not. PURE.

Called by the handler on the controller. Always holds: a change is granted to the leader of the newest epoch that knows
the newest state of the partition, and only brokers join that are there, in the life that the leader has seen catch up,
with room for more, and not about to stop (KIP-497, 841, 903).
"""

from dataclasses import replace
from typing import NamedTuple

from barnabas.cluster.deciding import Facts
from barnabas.cluster.elections import Electorate, eligible_beside
from barnabas.cluster.image import (
    Change,
    ClusterImage,
    PartitionImage,
    PartitionsChanged,
    Recovery,
    TopicImage,
)
from barnabas.cluster.reassignment import advanced
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.messages.controlling import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AlterPartitionTopicResult,
)


class Granted(NamedTuple):
    """What is to be stored, the answer that holds once it is, and brokers that have their partitions back."""

    changes: list[Change]
    response: AlterPartitionResponse
    found: list[tuple[BrokerId, TopicPartition]]


def alter_partitions(image: ClusterImage, request: AlterPartitionRequest, facts: Facts) -> Granted:
    """The changes that a leader asks for, as far as they are granted; the answer has a code for each partition.

    A new ISR may be what a reassignment under way has waited for.
    """
    asking = image.brokers.get(BrokerId(request.broker_id))
    if asking is None or asking.epoch != request.broker_epoch:
        raise Refused(Code.STALE_BROKER_EPOCH)
    brokers = facts.electorate(image)
    changes: list[Change] = []
    found: list[tuple[BrokerId, TopicPartition]] = []
    response = AlterPartitionResponse()
    for wanted in request.topics:
        topic = image.topic_by_id(wanted.topic_id)
        results = AlterPartitionTopicResult(wanted.topic_id)
        response.topics.append(results)
        changed: dict[int, PartitionImage] = {}
        for data in wanted.partitions:
            try:
                now = _granted(image, topic, data, asking.id, brokers, facts)
            except Refused as refused:
                results.partitions.append(_refusal(topic, data, refused.code))
                continue
            assert topic is not None
            tp = TopicPartition(topic.name, data.partition_index)
            after = advanced(now, _electorate(brokers, facts, tp, now.isr), facts.policy(topic)).partition
            changed[data.partition_index] = after
            results.partitions.append(_result(data.partition_index, after, asking.id))
            found += [(broker, tp) for broker in facts.lacking(tp) if broker in now.isr]
        if topic is not None and changed:
            changes.append(PartitionsChanged(topic.name, changed))
    return Granted(changes, response, found)


def _granted(
    image: ClusterImage,
    topic: TopicImage | None,
    data: AlterPartitionData,
    asking: BrokerId,
    brokers: Electorate,
    facts: Facts,
) -> PartitionImage:
    """The partition with the ISR that its leader asks for, or a refusal."""
    if topic is None:
        raise Refused(Code.UNKNOWN_TOPIC_ID)
    if not 0 <= data.partition_index < len(topic.partitions):
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[data.partition_index]
    _check_epochs(partition, data, asking)
    isr = tuple(BrokerId(state.broker_id) for state in data.new_isr_with_epochs)
    if asking not in isr or len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        raise Refused(
            Code.INVALID_REQUEST, "The ISR is invalid: it has the leader and other replicas, each once."
        )
    recovery = _recovery(partition, data, isr)
    tp = TopicPartition(topic.name, data.partition_index)
    electorate = _electorate(brokers, facts, tp, isr)
    _check_members(image, partition, data, electorate)
    elr = eligible_beside(partition, isr, facts.policy(topic), electorate)
    return replace(partition, isr=isr, elr=elr, recovery=recovery)


def _check_epochs(partition: PartitionImage, data: AlterPartitionData, asking: BrokerId) -> None:
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        # Another controller has told this leader of what is not known here yet.
        raise Refused(Code.NOT_CONTROLLER)
    if data.leader_epoch < partition.leader_epoch:
        raise Refused(Code.FENCED_LEADER_EPOCH)
    if asking != partition.leader:
        raise Refused(Code.INVALID_REQUEST, "The request is invalid: its broker does not lead the partition.")
    if data.partition_epoch < partition.partition_epoch:
        raise Refused(Code.INVALID_UPDATE_VERSION)


def _recovery(partition: PartitionImage, data: AlterPartitionData, isr: tuple[BrokerId, ...]) -> Recovery:
    wanted = Recovery.RECOVERING if data.leader_recovery_state else Recovery.RECOVERED
    if wanted is Recovery.RECOVERING and (partition.recovery is not wanted or len(isr) > 1):
        raise Refused(Code.INVALID_REQUEST, "The recovery state is invalid for this partition.")
    return wanted


def _electorate(
    brokers: Electorate, facts: Facts, tp: TopicPartition, isr: tuple[BrokerId, ...]
) -> Electorate:
    """The brokers as a partition sees them; what is in sync lacks nothing."""
    return facts.around(tp, brokers)._replace(missing=facts.lacking(tp).difference(isr))


def _check_members(
    image: ClusterImage, partition: PartitionImage, data: AlterPartitionData, brokers: Electorate
) -> None:
    for state in data.new_isr_with_epochs:
        broker = BrokerId(state.broker_id)
        if broker not in brokers.live or (broker in brokers.leaving and broker not in partition.isr):
            raise Refused(Code.INELIGIBLE_REPLICA)
        if state.broker_epoch not in (-1, image.brokers[broker].epoch):
            raise Refused(Code.INELIGIBLE_REPLICA)


def _refusal(topic: TopicImage | None, data: AlterPartitionData, code: Code) -> AlterPartitionResult:
    """A refusal tells what holds, as far as it is known: the leader need not wait for the next announcement."""
    if topic is None or not 0 <= data.partition_index < len(topic.partitions):
        return AlterPartitionResult(data.partition_index, code, leader_id=-1, leader_epoch=-1)
    known = topic.partitions[data.partition_index]
    return AlterPartitionResult(
        data.partition_index,
        code,
        known.leader,
        known.leader_epoch,
        list(known.isr),
        known.recovery,
        known.partition_epoch,
    )


def _result(index: int, partition: PartitionImage, asking: BrokerId) -> AlterPartitionResult:
    code = Code.NONE if partition.leader == asking else Code.NEW_LEADER_ELECTED
    return AlterPartitionResult(
        index,
        code,
        partition.leader,
        partition.leader_epoch,
        list(partition.isr),
        partition.recovery,
        partition.partition_epoch + 1,  # as storing it makes it
    )
