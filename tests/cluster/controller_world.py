"""Owns a simulated cluster around the pure controller: brokers that die, records that are committed, one seed a run.

The world knows the truth: how much of each partition a broker really has. A record is committed when every replica in
sync has it, and min.insync.replicas of them are. `check` compares what the controller has decided with that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from barnabas.cluster.announcements import Difference
from barnabas.cluster.controller import WantedTopic, add_partitions, create_topic, delete_topic
from barnabas.cluster.deciding import Decision, Facts
from barnabas.cluster.elections import ElectionType
from barnabas.cluster.hearing import heard
from barnabas.cluster.hosted import HostedState
from barnabas.cluster.image import (
    NO_BROKER,
    BrokerEpoch,
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    Change,
    ClusterImage,
    ControllerElected,
    ControllerEpoch,
    PartitionImage,
)
from barnabas.cluster.isr import alter_partitions
from barnabas.cluster.reactions import balanced, elect_leaders, let_stop, lose, reactions, settle
from barnabas.cluster.reassignment import alter_reassignments
from barnabas.config import BrokerConfig, broker_config
from barnabas.errors import Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.messages.controlling import (
    AlterPartitionBrokerState,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopic,
)

BROKERS = [BrokerId(number) for number in range(1, 6)]
MIN_INSYNC = 2


@dataclass
class Truth:
    """Mutable: what really is of one partition."""

    committed: int = 0
    has: dict[BrokerId, int] = field(default_factory=dict)


class World:
    """Mutable: one run."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.config: BrokerConfig = broker_config({"min.insync.replicas": str(MIN_INSYNC)})[0]
        self.image = ClusterImage("c")
        self.facts, self.hosted = Facts(self.config.topic_defaults), HostedState()
        self.truth: dict[tuple[UUID, int], Truth] = {}
        self.running: dict[BrokerId, BrokerEpoch] = {}
        """Brokers whose process lives, whatever the controller knows."""
        self.asked: list[AlterPartitionRequest] = []
        """Requests on their way; they may come late."""
        self.known: dict[BrokerId, ClusterImage] = {}
        self.told: dict[BrokerId, ClusterImage] = {}
        self.noted: set[TopicPartition] = set()
        self.wiped: set[tuple[BrokerId, TopicPartition]] = set()
        """Folders that are gone."""
        self.doubtful: set[BrokerId] = set()
        """Brokers that a power cut has hit, and no controller knows."""
        self.serving: set[BrokerId] = set()
        """Brokers that a controller has told what they lead and follow in this life of theirs."""
        self.last_epoch = 0
        self.has_controller = False
        for broker in BROKERS:
            self.start(broker)
        self.fail_over()

    def run(self, steps: int) -> None:
        without_controller = [
            *[self.write] * 6,
            *[self.catch_up] * 4,
            *[self.ask_for_isr] * 4,
            *[self.kill] * 2,
            *[self.start_one] * 3,
            self.fail_over,
        ]
        with_controller = [
            *without_controller,
            *[self.hear_a_leader] * 4,
            *[self.announce] * 2,
            self.suspect,
            self.stop,
            self.wipe,
            self.create,
            self.grow,
            self.delete,
            self.reassign,
            self.elect,
            self.lose_controller,
        ]
        for _ in range(steps):
            before = self.image
            self.chance.choice(with_controller if self.has_controller else without_controller)()
            if self.has_controller:
                self.refuse()
                self.check(before)

    # What happens to brokers

    def start(self, broker: BrokerId) -> None:
        self.last_epoch += 1
        epoch = self.running[broker] = BrokerEpoch(self.last_epoch)
        self.known[broker] = ClusterImage("c")
        self.told.pop(broker, None)
        survived = broker not in self.doubtful
        self.sees(BrokerRegistered(BrokerImage(broker, "h", 1, f"r{broker % 2}", epoch, survived)))
        if self.has_controller:
            self.doubtful.discard(broker)
            self.serving.add(broker)

    def start_one(self) -> None:
        down = [broker for broker in BROKERS if broker not in self.running]
        if down:
            broker = self.chance.choice(down)
            if self.chance.random() < 0.3:
                self.lose_tails(broker)
            self.start(broker)

    def kill(self) -> None:
        """Kill some brokers; the controller may see their death, or only that they are back."""
        for broker in self.chance.sample(
            sorted(self.running), min(len(self.running), self.chance.choice([1, 1, 2, 5]))
        ):
            del self.running[broker]
            self.serving.discard(broker)
            fate = self.chance.random()
            if fate < 0.6:
                self.sees(BrokerGone(broker))
            elif fate < 0.7:
                self.lose_tails(broker)
                self.start(broker)
            else:
                self.start(broker)

    def suspect(self) -> None:
        """A proof that a process is dead, or a mistake; later it is known to live."""
        broker = self.chance.choice(BROKERS)
        life = self.image.brokers.get(broker)
        if life is None:
            return
        if broker in self.facts.dead:
            del self.facts.dead[broker]
        else:
            self.facts.dead[broker] = life.epoch
        self.does(settle(self.image, self.hosted.of(broker), self.facts))

    def stop(self) -> None:
        broker = self.chance.choice(BROKERS)
        if broker in self.running:
            self.does(let_stop(self.image, self.hosted, self.facts, broker, self.running[broker]))

    def wipe(self) -> None:
        """A broker that is known to be down loses the folder of one partition."""
        tp = self.some_partition()
        partition = self.image.partition(tp) if tp else None
        if tp is None or partition is None or not self.has_controller:
            return
        broker = self.chance.choice(partition.replicas)
        if broker not in self.image.brokers:
            self.truth_of(tp).has[broker] = 0
            self.wiped.add((broker, tp))

    def refuse(self) -> None:
        """A broker that is counted on for a partition, and has no folder for it, says so when it is told of it."""
        for broker, tp in sorted(self.wiped):
            partition = self.image.partition(tp)
            if partition is None or broker not in partition.replicas or partition.may_lack_on(broker):
                self.wiped.discard((broker, tp))
            elif broker in self.running and tp not in self.facts.missing.get(broker, ()):
                self.does(lose(self.image, self.facts, broker, [tp]))

    def lose_tails(self, broker: BrokerId) -> None:
        self.doubtful.add(broker)
        for truth in self.truth.values():
            if truth.has.get(broker, 0):
                truth.has[broker] -= self.chance.randrange(truth.has[broker] + 1)

    def lose_controller(self) -> None:
        """From here on things happen that no controller sees, until another one begins."""
        self.has_controller = False

    def fail_over(self) -> None:
        """Another controller begins: it knows the image and nothing else."""
        self.has_controller = True
        self.doubtful.difference_update(self.running)
        self.serving.update(self.running)
        epoch = ControllerEpoch(self.image.controller_epoch + 1)
        self.image = self.image.after([ControllerElected(self.chance.choice(BROKERS), epoch)])
        self.facts, self.hosted = Facts(self.config.topic_defaults), HostedState()
        self.does(reactions(None, self.image, self.hosted, self.facts))

    def sees(self, *changes: Change) -> None:
        before, self.image = self.image, self.image.after(changes)
        if self.has_controller:
            self.does(reactions(before, self.image, self.hosted, self.facts))

    def does(self, decision: Decision) -> None:
        for note in decision.notes:
            name, _, index = note.split(" ")[0].rpartition("-")
            if "lost" in note:
                self.noted.add(TopicPartition(name, int(index)))
        if decision.changes:
            self.image = self.image.after(decision.changes)
        self.hosted.follow(self.image)

    # What happens to partitions

    def truth_of(self, tp: TopicPartition) -> Truth:
        return self.truth.setdefault((self.image.topics[tp.topic].id, tp.partition), Truth())

    def some_partition(self) -> TopicPartition | None:
        names = sorted(self.image.topics)
        if not names:
            return None
        topic = self.image.topics[self.chance.choice(names)]
        return TopicPartition(topic.name, self.chance.randrange(len(topic.partitions)))

    def write(self) -> None:
        """Commit a record, if all that are in sync really are there, and enough of them."""
        tp = self.some_partition()
        partition = self.image.partition(tp) if tp else None
        if tp is None or partition is None or partition.leader == NO_BROKER:
            return
        members = self.maximal_isr(tp, partition)
        if len(partition.isr) < min(MIN_INSYNC, len(partition.replicas)) or not members <= self.serving:
            return
        truth = self.truth_of(tp)
        if all(truth.has.get(member, 0) >= truth.committed for member in members):
            truth.committed += 1
            truth.has |= dict.fromkeys(members, truth.committed)

    def maximal_isr(self, tp: TopicPartition, partition: PartitionImage) -> set[BrokerId]:
        """The ISR, and what its leader has asked for: that counts already (KIP-497)."""
        members = set(partition.isr)
        topic_id = self.image.topics[tp.topic].id
        for request in self.asked:
            (topic,) = request.topics
            (data,) = topic.partitions
            if (topic.topic_id, data.partition_index) == (topic_id, tp.partition) and (
                data.leader_epoch,
                data.partition_epoch,
            ) == (partition.leader_epoch, partition.partition_epoch):
                members |= {BrokerId(state.broker_id) for state in data.new_isr_with_epochs}
        return members

    def catch_up(self) -> None:
        """The followers of a partition copy all there is from its leader."""
        tp = self.some_partition()
        partition = self.image.partition(tp) if tp else None
        if tp is not None and partition is not None and partition.leader in self.serving:
            truth = self.truth_of(tp)
            for replica in partition.replicas:
                if replica in self.serving:
                    truth.has[replica] = truth.has.get(partition.leader, 0)

    def ask_for_isr(self) -> None:
        """A leader asks for the ISR that it sees; the request may be on its way for long."""
        tp = self.some_partition()
        partition = self.image.partition(tp) if tp else None
        if tp is None or partition is None or partition.leader not in self.serving:
            return
        truth, leader = self.truth_of(tp), partition.leader
        in_sync = [
            AlterPartitionBrokerState(replica, self.running[replica])
            for replica in partition.replicas
            if replica in self.serving
            and truth.has.get(replica, 0) >= truth.committed
            and (replica == leader or self.chance.random() < 0.7)
        ]
        data = AlterPartitionData(tp.partition, partition.leader_epoch, in_sync, 0, partition.partition_epoch)
        topic = AlterPartitionTopic(self.image.topics[tp.topic].id, [data])
        self.asked.append(AlterPartitionRequest(leader, self.running[leader], [topic]))

    def hear_a_leader(self) -> None:
        if not self.asked:
            return
        request = self.asked[-1] if self.chance.random() < 0.7 else self.chance.choice(self.asked)
        try:
            granted = alter_partitions(self.image, request, self.facts)
        except Refused:
            return
        for broker, tp in granted.found:
            self.facts.missing[broker].discard(tp)
        self.does(Decision(granted.changes, []))

    def create(self) -> None:
        wanted = WantedTopic(
            f"t{self.chance.randrange(4)}",
            UUID(int=self.chance.getrandbits(64)),
            self.chance.randrange(1, 4),
            self.chance.randrange(1, 4),
        )
        self.admin(lambda: create_topic(self.image, wanted, self.config))

    def grow(self) -> None:
        tp = self.some_partition()
        if tp:
            count = len(self.image.topics[tp.topic].partitions) + 1
            self.admin(lambda: add_partitions(self.image, tp.topic, count, None))

    def delete(self) -> None:
        tp = self.some_partition()
        if tp and self.chance.random() < 0.3:
            self.admin(lambda: delete_topic(self.image, tp.topic, self.config))

    def admin(self, decide: Callable[[], list[Change]]) -> None:
        try:
            changes = decide()
        except Refused:
            return
        self.sees(*changes)

    def reassign(self) -> None:
        tp = self.some_partition()
        if tp:
            target = self.chance.sample(BROKERS, self.chance.randrange(1, 4))
            wish = None if self.chance.random() < 0.3 else target
            self.does(alter_reassignments(self.image, {tp: wish}, self.facts).decision)

    def elect(self) -> None:
        tp = self.some_partition()
        if tp and self.chance.random() < 0.7:
            kind = self.chance.choice([ElectionType.PREFERRED, ElectionType.PREFERRED, ElectionType.UNCLEAN])
            self.does(elect_leaders(self.image, kind, [tp], self.facts).decision)
        else:
            self.does(balanced(self.image, self.facts, 10))

    def announce(self) -> None:
        """Tell a broker what it does not know yet."""
        broker = self.chance.choice(BROKERS)
        if broker in self.running and broker in self.image.brokers:
            for request in Difference(self.told.get(broker), self.image).to(broker):
                self.known[broker] = heard(self.known[broker], request, broker, self.running[broker])
            self.told[broker] = self.image
            known = self.known[broker]
            assert dict(known.topics) == dict(self.image.topics)
            assert dict(known.brokers) == dict(self.image.brokers)

    # What must hold

    def check(self, before: ClusterImage) -> None:
        live = self.facts.live(self.image)
        for name, topic in self.image.topics.items():
            was = before.topics.get(name)
            for index, partition in enumerate(topic.partitions):
                tp = TopicPartition(name, index)
                check_shape(partition)
                self.check_leader(tp, partition, live)
                self.check_records(tp, partition)
                if was is not None and was.id == topic.id and index < len(was.partitions):
                    check_epochs(was.partitions[index], partition)

    def check_leader(self, tp: TopicPartition, partition: PartitionImage, live: frozenset[BrokerId]) -> None:
        lacking = self.facts.lacking(tp)
        if partition.leader != NO_BROKER:
            assert partition.leader in live, f"{tp} is led by a broker that is dead"
        able = [replica for replica in partition.isr if replica in live and replica not in lacking]
        assert (partition.leader != NO_BROKER) >= bool(able), f"{tp} has no leader, and {able} could lead it"

    def check_records(self, tp: TopicPartition, partition: PartitionImage) -> None:
        """A leader, and what is in sync with it, has all that is committed, or a note has told that it may not."""
        truth = self.truth_of(tp)
        if partition.leader == NO_BROKER:
            return
        if tp in self.noted:
            self.noted.discard(tp)
            truth.committed = min(truth.committed, truth.has.get(partition.leader, 0))
        for member in partition.isr:
            if member in self.serving:
                has = truth.has.get(member, 0)
                assert has >= truth.committed, f"{tp}: {truth.committed} committed, {member} has {has}"


def check_shape(partition: PartitionImage) -> None:
    replicas = set(partition.replicas)
    assert len(replicas) == len(partition.replicas)
    assert len(set(partition.isr)) == len(partition.isr)
    assert partition.isr
    assert {*partition.isr, *partition.elr, *partition.adding, *partition.removing} <= replicas
    assert partition.leader in (*partition.isr, NO_BROKER)
    assert not set(partition.isr) & set(partition.elr)
    assert not set(partition.adding) & set(partition.removing)


def check_epochs(was: PartitionImage, now: PartitionImage) -> None:
    assert now.leader_epoch >= was.leader_epoch
    assert (now.partition_epoch > was.partition_epoch) == (now is not was) or now == was
    if now.leader != was.leader:
        assert now.leader_epoch > was.leader_epoch
