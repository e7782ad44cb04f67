"""What a controller does about brokers that come, go, stop, lose a partition or have no room for it: it settles what
they have. PURE.

The controller keeps `Facts`, what it knows besides the image, and a `HostedState`. Each decision looks at the
partitions of the brokers in question and at no others; only a controller that begins looks at all of them.
"""

from collections.abc import Collection, Iterable, Iterator

from barnabas.cluster.deciding import Decided, Decision, Facts, decide_each, every_partition
from barnabas.cluster.elections import (
    NONE,
    ElectionType,
    Policy,
    Settled,
    Share,
    elect,
    may_prefer,
    settled,
    unbalanced,
)
from barnabas.cluster.hosted import HostedState
from barnabas.cluster.image import NO_BROKER, BrokerRegistered, ClusterImage, PartitionImage
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition


def reactions(
    before: ClusterImage | None, image: ClusterImage, hosted: HostedState, facts: Facts
) -> Decision:
    """What is to be done about the difference between two images; before is None where a controller begins.

    A broker that came back after a power cut is taken from where it may lack records, once: the same changes say that
    it can be believed from here on. The next controller must not take it from where it has caught up since.
    """
    hosted.follow(image)
    if before is None:
        facts.forget_lives(image)
        doubtful = [broker.id for broker in image.brokers.values() if not broker.survived]
        # Their last life has ended: one that led must not go on in its epoch, of which it may have lost records.
        settled_all = settle(image, every_partition(image), facts, doubtful=doubtful, bounced=doubtful)
        return _believing(doubtful, image, settled_all)
    delta = image.since(before)
    changed = [broker for broker in sorted(delta.brokers) if _is_another_life(broker, before, image)]
    for broker in changed:
        facts.forget_disks(broker)
    facts.forget_lives(image)
    there = [broker for broker in changed if broker in image.brokers]
    touched = dict.fromkeys(tp for broker in changed for tp in hosted.of(broker))
    touched |= dict.fromkeys(_of_changed_topics(delta.topics, before, image))
    doubtful = [broker for broker in there if not image.brokers[broker].survived]
    bounced = [broker for broker in there if broker in before.brokers]
    return _believing(doubtful, image, settle(image, touched, facts, doubtful=doubtful, bounced=bounced))


def _believing(doubtful: Iterable[BrokerId], image: ClusterImage, decision: Decision) -> Decision:
    """The decision, and that these brokers are in doubt no more."""
    believed = [BrokerRegistered(image.brokers[broker]._replace(survived=True)) for broker in doubtful]
    return Decision([*decision.changes, *believed], decision.notes)


def _is_another_life(broker: BrokerId, before: ClusterImage, image: ClusterImage) -> bool:
    was, now = before.brokers.get(broker), image.brokers.get(broker)
    return was is None or now is None or was.epoch != now.epoch


def settle(
    image: ClusterImage,
    partitions: Iterable[TopicPartition],
    facts: Facts,
    *,
    doubtful: Collection[BrokerId] = NONE,
    bounced: Collection[BrokerId] = NONE,
) -> Decision:
    """Settle these partitions. Brokers that `bounced` have ended a life and begun another."""
    brokers = facts.electorate(image)._replace(doubtful=doubtful)
    before = brokers._replace(live=facts.live(image).difference(bounced), doubtful=NONE)

    def settle_one(tp: TopicPartition, partition: PartitionImage, policy: Policy) -> Settled:
        if bounced and any(broker in partition.replicas for broker in bounced):
            partition = settled(partition, facts.around(tp, before), policy).partition
        return settled(partition, facts.around(tp, brokers), policy)

    return decide_each(image, partitions, facts, settle_one).decision


def _of_changed_topics(
    names: Iterable[str], before: ClusterImage, image: ClusterImage
) -> Iterator[TopicPartition]:
    """Partitions that are new, or whose topic has other settings: a leader may be possible now, or gone meanwhile."""
    for name in sorted(names):
        was, now = before.topics.get(name), image.topics.get(name)
        if now is None:
            continue
        is_known = was is not None and was.id == now.id and was.configs == now.configs
        for index in range(len(was.partitions) if was is not None and is_known else 0, len(now.partitions)):
            yield TopicPartition(name, index)


# Brokers that stop, or cannot serve


def let_stop(
    image: ClusterImage, hosted: HostedState, facts: Facts, broker: BrokerId, epoch: int
) -> Decision:
    """Move leaders away from a broker that is about to stop, and take it out of the ISRs: it does not come back."""
    known = image.brokers.get(broker)
    if known is None:
        raise Refused(Code.BROKER_NOT_AVAILABLE)
    if 0 <= epoch < known.epoch:
        raise Refused(Code.STALE_BROKER_EPOCH)
    facts.stopping[broker] = known.epoch
    hosted.follow(image)
    return settle(image, hosted.of(broker), facts)


def still_led(
    image: ClusterImage, hosted: HostedState, facts: Facts, broker: BrokerId
) -> list[TopicPartition]:
    """The partitions that a broker leads and that could be led by others, once these have caught up."""
    hosted.follow(image)
    live = facts.live(image)
    remaining = []
    for tp in hosted.of(broker):
        partition = image.partition(tp)
        if partition is not None and partition.leader == broker:
            others = (replica for replica in partition.replicas if replica != broker)
            if any(replica in live for replica in others):
                remaining.append(tp)
    return remaining


def lose(
    image: ClusterImage, facts: Facts, broker: BrokerId, partitions: Iterable[TopicPartition]
) -> Decision:
    """Go on without a broker's copies of these partitions: a directory has failed, or folders are gone."""
    lost = [
        tp for tp in partitions if (known := image.partition(tp)) is not None and broker in known.replicas
    ]
    facts.missing.setdefault(broker, set()).update(lost)
    return settle(image, lost, facts)


def give_way(
    image: ClusterImage, facts: Facts, broker: BrokerId, partitions: Iterable[TopicPartition]
) -> Decision:
    """Let others lead, and count, where a broker has no room for more; `partitions` are all of these that it has now.

    It goes on where no other can take over: what is full is still read.
    """
    full = frozenset(
        tp for tp in partitions if (known := image.partition(tp)) is not None and broker in known.replicas
    )
    if full:
        facts.full[broker] = full
    else:
        facts.full.pop(broker, None)
    return settle(image, sorted(full), facts)


# Elections that are asked for


def elect_leaders(
    image: ClusterImage, kind: int, partitions: Iterable[TopicPartition] | None, facts: Facts
) -> Decided:
    """Hold an election for these partitions; for all that need one, where none is named."""
    if kind not in list(ElectionType):
        raise Refused(Code.INVALID_REQUEST, f"The election type {kind} is invalid: 0 preferred, 1 unclean.")
    brokers = facts.electorate(image)

    def elect_one(tp: TopicPartition, partition: PartitionImage, policy: Policy) -> Settled:
        return elect(partition, ElectionType(kind), facts.around(tp, brokers), policy)

    named = every_partition(image) if partitions is None else partitions
    decision, outcomes = decide_each(image, named, facts, elect_one)
    if partitions is None:
        outcomes = {tp: found for tp, found in outcomes.items() if not _is_not_needed(found)}
    return Decided(decision, outcomes)


def _is_not_needed(outcome: Refused | None) -> bool:
    return outcome is not None and outcome.code == Code.ELECTION_NOT_NEEDED


def balanced(image: ClusterImage, facts: Facts, percentage: int) -> Decision:
    """Give brokers the partitions back that they are the first replica of, where others lead too many of them.

    Looks at the whole cluster: it is asked once in leader.imbalance.check.interval.seconds.
    """
    brokers = facts.electorate(image)
    shares: dict[BrokerId, Share] = {}
    astray: dict[BrokerId, list[TopicPartition]] = {}
    for tp in every_partition(image):
        partition = image.topics[tp.topic].partitions[tp.partition]
        preferred = partition.replicas[0]
        led, lost = shares.get(preferred, Share(0, 0))
        is_astray = partition.leader not in (preferred, NO_BROKER)
        shares[preferred] = Share(led + 1, lost + is_astray)
        is_moving = partition.adding or partition.removing
        if is_astray and not is_moving and may_prefer(partition, facts.around(tp, brokers)):
            astray.setdefault(preferred, []).append(tp)
    wanted = [tp for broker in unbalanced(shares, percentage) for tp in astray.get(broker, ())]
    return elect_leaders(image, ElectionType.PREFERRED, wanted, facts).decision
