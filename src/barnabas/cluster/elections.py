"""Which replica leads a partition, and which ones count as in sync. PURE.

`settled` is what a partition should be, given the brokers there are; whatever happens to a broker, its partitions are
settled anew (`cluster.reactions`). `elect` is an election that a person, or the balance of leaders, asks for.

Always holds of what is settled: the leader is in the ISR, the ISR is never empty and has replicas only. A leader that
changes begins a new epoch; an ISR that changes alone does not. Without unclean.leader.election.enable only a replica
leads that has every committed record: one of the ISR, or of the ELR (KIP-966), where those are that left the ISR while
it had fewer members than min.insync.replicas, for nothing is committed then.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from barnabas.cluster.image import NO_BROKER, PartitionImage, Recovery, TopicImage
from barnabas.config import TopicConfig
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, LeaderEpoch

NONE: frozenset[BrokerId] = frozenset()


class Policy(NamedTuple):
    """What a topic's settings say about elections."""

    min_insync: int = 1
    allows_unclean: bool = False


def policy_of(topic: TopicImage, defaults: TopicConfig) -> Policy:
    """The policy of a topic; its settings have been checked when they were made."""
    least = topic.configs.get("min.insync.replicas", defaults.min_insync_replicas)
    unclean = topic.configs.get("unclean.leader.election.enable")
    is_allowed = defaults.unclean_leader_election_enable if unclean is None else unclean.lower() == "true"
    return Policy(int(least), is_allowed)


class Electorate(NamedTuple):
    """The brokers as one partition sees them."""

    live: Collection[BrokerId]
    leaving: Collection[BrokerId] = NONE
    """Live, and about to stop, or without room for more of this partition: they give way where another can take over,
    and do not join the ISR (KIP-841)."""
    doubtful: Collection[BrokerId] = NONE
    """Back after a power cut: the last that they had stored may be gone."""
    missing: Collection[BrokerId] = NONE
    """Live, but without this partition: its directory has failed, or its folder is gone."""


class Settled(NamedTuple):
    """A partition as it should be, and what a person should know of the way there."""

    partition: PartitionImage
    note: str = ""


def settled(partition: PartitionImage, electorate: Electorate, policy: Policy) -> Settled:
    """What a partition should be; the same object where it is that already."""
    isr, elr = _trusted(partition, electorate)
    known = (
        replace(partition, isr=isr, elr=elr) if (isr, elr) != (partition.isr, partition.elr) else partition
    )
    present = [replica for replica in partition.replicas if _is_present(replica, electorate)]
    staying = [replica for replica in present if replica not in electorate.leaving]
    for eligible in (isr, elr):
        for candidates in (staying, present):
            found = [replica for replica in candidates if replica in eligible]
            if found:
                return _clean(known, found, eligible is isr, electorate, policy)
    if policy.allows_unclean and present:
        return unclean(known, staying or present)
    if known.leader == NO_BROKER:
        return Settled(known)
    return Settled(_led_by(known, NO_BROKER, known.isr), "has no leader: no replica in sync is there")


def unclean(partition: PartitionImage, candidates: Iterable[BrokerId]) -> Settled:
    """Let a replica lead that may lack committed records; the others become copies of it."""
    leader = next(iter(candidates))
    led = replace(_led_by(partition, leader, (leader,)), elr=(), recovery=Recovery.RECOVERING)
    return Settled(
        led,
        f"is led by broker {leader}, which was not in sync: records that were committed since it "
        "fell behind are lost",
    )


def _trusted(
    partition: PartitionImage, electorate: Electorate
) -> tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]]:
    """The ISR and the ELR without replicas that may lack records, unless that would leave no one in them."""
    isr, elr = partition.isr, partition.elr
    for suspects in (electorate.missing, electorate.doubtful):
        kept = tuple(replica for replica in isr if replica not in suspects)
        eligible = tuple(replica for replica in elr if replica not in suspects)
        if kept or not eligible:
            isr, elr = kept or isr, eligible
        else:
            # They have all that is committed, be they there or not: from now on they are the ones to wait for.
            isr, elr = eligible, ()
    return isr, elr


def _is_present(replica: BrokerId, electorate: Electorate) -> bool:
    return replica in electorate.live and replica not in electorate.missing


def _clean(
    partition: PartitionImage,
    found: list[BrokerId],
    is_in_sync: bool,
    electorate: Electorate,
    policy: Policy,
) -> Settled:
    """The partition led by its leader, or by the first of those found; they are in the order of the replicas."""
    leader = partition.leader if partition.leader in found else found[0]
    isr = tuple(replica for replica in partition.isr if replica in found) if is_in_sync else (leader,)
    elr = eligible_beside(partition, isr, policy, electorate)
    led = _led_by(partition, leader, isr)
    if led.elr != elr:
        led = replace(led, elr=elr)
    if leader not in electorate.doubtful:
        return Settled(led)
    # It may have led before: what it writes now must not pass for what it wrote then. What others have of it is open.
    epoch = LeaderEpoch(partition.leader_epoch + 1)
    led = replace(led, isr=(leader,), elr=(), leader_epoch=epoch)
    text = f"is led by broker {leader}, which has lost its power: records that were not flushed may be lost"
    return Settled(led, text)


def eligible_beside(
    partition: PartitionImage, isr: Collection[BrokerId], policy: Policy, electorate: Electorate
) -> tuple[BrokerId, ...]:
    """The ELR that goes with a new ISR."""
    if len(isr) >= min(policy.min_insync, len(partition.replicas)):
        return ()
    return tuple(
        replica
        for replica in partition.replicas
        if replica not in isr
        and (replica in partition.isr or replica in partition.elr)
        and replica not in electorate.missing
    )


def _led_by(partition: PartitionImage, leader: BrokerId, isr: tuple[BrokerId, ...]) -> PartitionImage:
    if leader != partition.leader:
        epoch = LeaderEpoch(partition.leader_epoch + 1)
        return replace(partition, leader=leader, isr=isr, leader_epoch=epoch)
    return partition if isr == partition.isr else replace(partition, isr=isr)


# Elections that are asked for


class ElectionType(IntEnum):
    """What ElectLeaders asks for, numbered as it does."""

    PREFERRED = 0
    UNCLEAN = 1


def elect(partition: PartitionImage, kind: ElectionType, electorate: Electorate, policy: Policy) -> Settled:
    """The partition after an election that was asked for, or a refusal with the code that ElectLeaders has for it."""
    if kind is ElectionType.PREFERRED:
        return Settled(_preferred(partition, electorate))
    if partition.leader != NO_BROKER:
        raise Refused(Code.ELECTION_NOT_NEEDED)
    clean = settled(partition, electorate, policy)
    if clean.partition.leader != NO_BROKER:
        return clean
    present = [replica for replica in partition.replicas if replica in electorate.live]
    if not present:
        raise Refused(Code.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    # One that has lost its records comes last: then they are gone for good, and the partition begins anew.
    return unclean(partition, sorted(present, key=lambda replica: replica in electorate.missing))


def _preferred(partition: PartitionImage, electorate: Electorate) -> PartitionImage:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise Refused(Code.ELECTION_NOT_NEEDED)
    if not may_prefer(partition, electorate):
        raise Refused(Code.PREFERRED_LEADER_NOT_AVAILABLE)
    return _led_by(partition, preferred, partition.isr)


def may_prefer(partition: PartitionImage, electorate: Electorate) -> bool:
    """Whether the first replica of a partition could lead it."""
    preferred = partition.replicas[0]
    return (
        preferred in partition.isr
        and _is_present(preferred, electorate)
        and preferred not in electorate.leaving
    )


class Share(NamedTuple):
    """The partitions whose first replica a broker is, and how many of them others lead."""

    preferred: int
    astray: int


def unbalanced(shares: Mapping[BrokerId, Share], percentage: int) -> list[BrokerId]:
    """The brokers of whose partitions more than leader.imbalance.per.broker.percentage are led by others."""
    return [
        broker
        for broker, share in sorted(shares.items())
        if share.astray * 100 > percentage * share.preferred
    ]
