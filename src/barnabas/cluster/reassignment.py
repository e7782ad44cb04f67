"""Moves partitions to other brokers: what a reassignment makes of a partition, step by step. PURE.

While one is under way the partition has its old and its new replicas. The new ones copy, and join the ISR when they
have caught up; when all that are to stay are in it (`advanced`), the others go. Called by the controller when a
reassignment is asked for, and with every new ISR. Always holds: a replica goes only when every replica that is to stay
is in sync.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from barnabas.cluster.deciding import Decided, Facts, decide_each, every_partition
from barnabas.cluster.elections import Electorate, Policy, Settled, settled
from barnabas.cluster.image import ClusterImage, PartitionImage
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition


def alter_reassignments(
    image: ClusterImage,
    wishes: Mapping[TopicPartition, Sequence[int] | None],
    facts: Facts,
    *,
    may_change_factor: bool = True,
) -> Decided:
    """Begin, change or (None) cancel reassignments: changes, and the outcome of each."""
    brokers = facts.electorate(image)

    def alter(tp: TopicPartition, partition: PartitionImage, policy: Policy) -> Settled:
        target, electorate = wishes[tp], facts.around(tp, brokers)
        if target is None:
            return cancelled(partition, electorate, policy)
        _check(image, partition, target, may_change_factor=may_change_factor)
        begun = begin(partition, [BrokerId(replica) for replica in target])
        return advanced(begun, electorate, policy)

    return decide_each(image, wishes, facts, alter)


def begin(partition: PartitionImage, target: Sequence[BrokerId]) -> PartitionImage:
    """The partition on its way to these replicas, also where it was on its way elsewhere."""
    removing = tuple(replica for replica in partition.replicas if replica not in target)
    adding = tuple(
        replica for replica in target if replica not in partition.replicas or replica in partition.adding
    )
    return replace(partition, replicas=(*target, *removing), adding=adding, removing=removing)


def advanced(partition: PartitionImage, electorate: Electorate, policy: Policy) -> Settled:
    """The partition a step further: where all that are to stay are in sync, the others go."""
    if not is_under_way(partition):
        return Settled(partition)
    staying = _without(partition.replicas, partition.removing)
    if not set(staying) <= set(partition.isr):
        return Settled(partition)
    return settled(_reduced(partition, staying), electorate, policy)


def cancelled(partition: PartitionImage, electorate: Electorate, policy: Policy) -> Settled:
    """The partition where it was before."""
    if not is_under_way(partition):
        raise Refused(Code.NO_REASSIGNMENT_IN_PROGRESS)
    staying = _without(partition.replicas, partition.adding)
    if not any(replica in staying for replica in (*partition.isr, *partition.elr)):
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            "Going back would be an invalid assignment: none of the former replicas is in sync.",
        )
    return settled(_reduced(partition, staying), electorate, policy)


def is_under_way(partition: PartitionImage) -> bool:
    return bool(partition.adding or partition.removing)


def under_way(
    image: ClusterImage, partitions: Iterable[TopicPartition] | None = None
) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    """The reassignments among these partitions, or all of them, that are not over."""
    for tp in every_partition(image) if partitions is None else partitions:
        partition = image.partition(tp)
        if partition is not None and is_under_way(partition):
            yield tp, partition


def _check(
    image: ClusterImage, partition: PartitionImage, target: Sequence[int], *, may_change_factor: bool
) -> None:
    if not target or len(set(target)) != len(target):
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            "The replica assignment is invalid: a partition's replicas are one or more different brokers.",
        )
    strangers = [replica for replica in target if replica not in image.brokers]
    if strangers:
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"The replica assignment is invalid: broker {strangers[0]} is not there.",
        )
    factor = len(_without(partition.replicas, partition.adding))
    if not may_change_factor and len(target) != factor:
        raise Refused(
            Code.INVALID_REPLICATION_FACTOR,
            f"A replication factor of {len(target)} is invalid here: the partition has {factor} replicas, "
            "and the request allows no other number.",
        )


def _reduced(partition: PartitionImage, staying: tuple[BrokerId, ...]) -> PartitionImage:
    """The partition with these replicas only. Its leader may not be one of them: then it has to be settled."""
    isr = tuple(replica for replica in partition.isr if replica in staying)
    elr = tuple(replica for replica in partition.elr if replica in staying)
    return replace(
        partition, replicas=staying, isr=isr or elr, elr=elr if isr else (), adding=(), removing=()
    )


def _without(replicas: Iterable[BrokerId], gone: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    gone = set(gone)
    return tuple(replica for replica in replicas if replica not in gone)
