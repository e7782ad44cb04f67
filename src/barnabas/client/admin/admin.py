"""Looks after topics, settings, records, groups and brokers. Used by the command line and by people's scripts.

Every method is one question and one typed, frozen answer; what a broker refuses is raised as the class of its
code (`errors.TopicAlreadyExists`), with a sentence that names the topic, group or setting. No method takes much
longer than `request_timeout_ms`.

    with Admin("localhost:9092") as admin:
        admin.create_topic("orders", partitions=4, configs={"retention.ms": "60000"})
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Unpack

from barnabas.client.admin import (
    brokers,
    configs,
    groups,
    health,
    leaders,
    offset_resets,
    placement,
    throttles,
    topics,
    transactions,
)
from barnabas.client.admin.brokers import ClusterDescription, LogDir
from barnabas.client.admin.configs import Config, Resource
from barnabas.client.admin.groups import GroupDescription, GroupListing
from barnabas.client.admin.health import ClusterView
from barnabas.client.admin.leaders import ActiveProducer
from barnabas.client.admin.offset_resets import MovedOffset, Target
from barnabas.client.admin.placement import ElectionType, Reassignment
from barnabas.client.admin.plans import Plan
from barnabas.client.admin.throttles import Lifted
from barnabas.client.admin.topics import CreatedTopic, NewTopic
from barnabas.client.admin.transactions import HangingTransaction, TransactionDescription, TransactionListing
from barnabas.client.consumer import offsets
from barnabas.client.consumer.offsets import OffsetAt
from barnabas.client.declared import BOOTSTRAP_SERVERS, AdminSettings
from barnabas.client.network.failures import TimedOut, Unreachable
from barnabas.client.network.metadata import Topic
from barnabas.client.network.routing import Cluster
from barnabas.client.settings import Long, SettingsSignature, Unique, checked
from barnabas.errors import Refused, UnsupportedVersion
from barnabas.types import Offset, TopicPartition


@checked
class Admin(Unique):
    """A connection to a cluster for looking after it. Not for several threads at once."""

    __signature__ = SettingsSignature()

    def __init__(
        self, bootstrap_servers: str | Iterable[str] = BOOTSTRAP_SERVERS, **settings: Unpack[AdminSettings]
    ) -> None:
        self._timeout = settings["request_timeout_ms"] / 1000
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=settings["client_id"],
            request_timeout_ms=settings["request_timeout_ms"],
            retry_backoff_ms=settings["retry_backoff_ms"],
        )

    def close(self) -> None:
        self._cluster.close()

    def __enter__(self) -> "Admin":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic; -1 leaves a number to the broker, an assignment (partition: brokers) gives both."""
        wish = NewTopic(name, partitions, replication_factor, configs or {}, assignment or {})
        return self.create_topics([wish], validate_only=validate_only)[0]

    def create_topics(self, wishes: Iterable[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]:
        """Create topics. Raises for one that is refused, the others in its notes, after all were tried."""
        return topics.create_topics(self._cluster, wishes, validate_only=validate_only, timeout=self._timeout)

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, in order."""
        found = topics.list_topics(self._cluster, timeout=self._timeout)
        return [topic.name for topic in found if include_internal or not topic.is_internal]

    def describe_topic(self, name: str) -> Topic:
        """A topic with its partitions, leaders and replicas, as it is now."""
        return self.describe_topics([name])[0]

    def describe_topics(self, names: Iterable[str] | None = None) -> list[Topic]:
        """Topics with their partitions, as they are now; all of them when no names are given."""
        if names is None:
            return topics.list_topics(self._cluster, timeout=self._timeout)
        return topics.describe_topics(self._cluster, names, timeout=self._timeout)

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `total` partitions; there is no way back."""
        topics.create_partitions(
            self._cluster, {topic: total}, validate_only=validate_only, timeout=self._timeout
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        self.delete_topics([name])

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics. Raises for one that is refused, the others in its notes, after all were tried."""
        topics.delete_topics(self._cluster, names, timeout=self._timeout)

    # Settings

    def describe_configs(
        self, resource: Resource, names: Iterable[str] | None = None, *, documentation: bool = False
    ) -> list[Config]:
        """The settings of a topic or a broker, in order of their names."""
        return configs.describe_configs(
            self._cluster, resource, names, documentation=documentation, timeout=self._timeout
        )

    def alter_configs(
        self,
        resource: Resource,
        changes: Mapping[str, str | None],
        *,
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Set some settings and leave the others alone; None puts one back to its default."""
        wishes = configs.changes_of(changes, append or {}, subtract or {})
        configs.alter_configs(
            self._cluster, resource, wishes, validate_only=validate_only, timeout=self._timeout
        )

    # Records

    def delete_records(self, below: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Delete what is below an offset of each partition (-1: all); the answer is where each log starts."""
        return leaders.delete_records(self._cluster, below, timeout=self._timeout)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        """The first offset at or after a timestamp, or of EARLIEST, LATEST, MAX_TIMESTAMP.

        With `read_committed` LATEST is the first offset whose transaction is not decided.
        """
        return offsets.list_offsets(
            self._cluster, wanted, timeout=self._timeout, read_committed=read_committed
        )

    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """The idempotent and transactional producers that wrote into each partition of late."""
        return leaders.describe_producers(self._cluster, partitions, timeout=self._timeout)

    # Transactions

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids, or those in these states (Ongoing, Empty, ...), of these producers, with a transaction
        that has been open for longer than this, or with a name that matches a regular expression."""
        return transactions.list_transactions(
            self._cluster, states, producer_ids, longer_than_ms, pattern, timeout=self._timeout
        )

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """What its coordinator knows of a transactional id. Raises where it does not know it."""
        return transactions.describe_transaction(self._cluster, transactional_id, timeout=self._timeout)

    def fence_producer(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id, and let its producer get nowhere any more."""
        transactions.fence_producer(self._cluster, transactional_id, timeout=self._timeout)

    def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, open_for_ms: int = 900_000
    ) -> list[HangingTransaction]:
        """Transactions that are open in partitions though no coordinator would end them: readers of committed records
        do not get past them. Younger ones than `open_for_ms` are not looked at."""
        return transactions.find_hanging(self._cluster, partitions, open_for_ms, timeout=self._timeout)

    def abort_hanging_transaction(self, partition: TopicPartition, start_offset: int) -> None:
        """Abort a transaction in one partition only, whatever its coordinator may say."""
        transactions.abort_hanging(self._cluster, partition, start_offset, timeout=self._timeout)

    # Groups

    def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """All groups, or those in these states (Stable, Empty, ...) and of these types (classic, consumer)."""
        return groups.list_groups(self._cluster, states, types, timeout=self._timeout)

    def describe_group(self, group: str) -> GroupDescription:
        """A group with its members and what is assigned to them."""
        return groups.describe_group(self._cluster, group, timeout=self._timeout)

    def describe_groups(self, ids: Iterable[str]) -> list[GroupDescription]:
        """Several groups with their members. Raises for the first that there is not."""
        return [self.describe_group(group) for group in ids]

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and what it has committed."""
        groups.delete_group(self._cluster, group, timeout=self._timeout)

    def delete_groups(self, ids: Iterable[str]) -> None:
        """Delete groups. Raises for one that is refused, the others in its notes, after all were tried."""
        groups.delete_groups(self._cluster, ids, timeout=self._timeout)

    def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Offset]:
        """What a group has committed, of these partitions or of all."""
        return groups.committed_offsets(self._cluster, group, partitions, timeout=self._timeout)

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, Long]) -> None:
        """Commit for a group without members: where it will go on reading."""
        groups.alter_offsets(self._cluster, group, offsets, timeout=self._timeout)

    def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group has committed of partitions that no member subscribes to."""
        groups.delete_offsets(self._cluster, group, partitions, timeout=self._timeout)

    def reset_group_offsets(
        self,
        group: str,
        where: Iterable[str | TopicPartition],
        *,
        to: int | None = None,
        to_offset: Long | None = None,
        shift_by: int | None = None,
        validate_only: bool = False,
    ) -> dict[TopicPartition, MovedOffset]:
        """Move where a group without members goes on, in these topics or partitions, and tell where that is.

        `to` is EARLIEST, LATEST or a timestamp; `to_offset` an offset; `shift_by` a number of records on or back.
        What is before a log's start or behind its end is moved to it.
        """
        return offset_resets.reset_offsets(
            self._cluster,
            group,
            where,
            Target(to, to_offset, shift_by),
            validate_only=validate_only,
            timeout=self._timeout,
        )

    # Replicas

    def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        kind: ElectionType = ElectionType.PREFERRED,
    ) -> dict[TopicPartition, Refused | None]:
        """Elect leaders of these partitions, or of all; for each that was tried, why it has no other leader now."""
        return placement.elect_leaders(self._cluster, kind, partitions, timeout=self._timeout)

    def alter_reassignments(self, plan: Plan) -> None:
        """Begin to move partitions to other brokers: the replicas that each is to have. It goes on by itself."""
        placement.alter_reassignments(self._cluster, plan, timeout=self._timeout)

    def cancel_reassignments(self, partitions: Iterable[TopicPartition]) -> None:
        """Put partitions that are being moved back to where they were."""
        wishes = dict.fromkeys(map(TopicPartition._make, partitions))
        placement.alter_reassignments(self._cluster, wishes, timeout=self._timeout)

    def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments under way, of these partitions or of all."""
        return placement.list_reassignments(self._cluster, partitions, timeout=self._timeout)

    def throttle_reassignments(self, plan: Plan, rate: int) -> None:
        """Hold the copies of a plan to `rate` bytes a second at each broker. Before they begin, or another rate while
        they go on; `lift_throttle` takes it off."""
        moving = self.list_reassignments(list(plan))
        current = {
            (tp := TopicPartition(topic.name, each.index)): [
                int(broker) for broker in each.replicas if tp not in moving or broker not in moving[tp].adding
            ]
            for topic in self.describe_topics(sorted({tp.topic for tp in plan}))
            for each in topic.partitions
        }
        throttled = throttles.throttled_by(current, plan)
        throttles.set_throttle(self._cluster, throttled, rate, self._alive(), timeout=self._timeout)

    def lift_throttle(self, names: Iterable[str]) -> Lifted:
        """Hold copies of these topics back no more, and let all brokers copy as fast as they can: whether a throttle
        was set, and the brokers of these topics that are not there to hear of it."""
        topics, alive = list(names), self._alive()
        described = self.describe_topics(topics) if topics else []
        replicas = {broker for topic in described for each in topic.partitions for broker in each.replicas}
        lifted = throttles.lift_throttle(self._cluster, topics, alive, timeout=self._timeout)
        return lifted._replace(missed=sorted({*lifted.missed, *(replicas - {*alive})}))

    def list_throttles(self) -> dict[int, int]:
        """The brokers that hold copies to a rate, and the rate in bytes a second."""
        return throttles.rates_of(self._cluster, self._alive(), timeout=self._timeout)

    def _alive(self) -> list[int]:
        return [broker.id for broker in self.describe_cluster().brokers]

    # Brokers

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        return brokers.describe_cluster(self._cluster, timeout=self._timeout)

    def describe_log_dirs(self, ids: Iterable[int] | None = None) -> list[LogDir]:
        """The data directories of these brokers, or of all, and what lies in them."""
        return brokers.describe_log_dirs(self._cluster, ids, timeout=self._timeout)

    def view(self, broker: int | None = None) -> ClusterView:
        """Brokers and topics as one broker sees them, or any, and what is wrong with them."""
        return health.view_of(self._cluster, broker, timeout=self._timeout)

    def alter_replica_log_dirs(self, broker: int, moves: Mapping[TopicPartition, str]) -> None:
        """Move replicas of a broker to other data directories of its own; `describe_log_dirs` shows how far it is."""
        brokers.alter_replica_log_dirs(self._cluster, broker, moves, timeout=self._timeout)

    def unregister_broker(self, broker: int) -> None:
        """Let the cluster forget a broker that never comes back."""
        brokers.unregister_broker(self._cluster, broker, timeout=self._timeout)

    def view_of_topics(self, names: Iterable[str] | None = None) -> ClusterView:
        """The same for these topics or all, with what tells whether they are well: min.insync.replicas, moves."""
        chosen = tuple(self.describe_topics(names))
        in_sync = configs.min_in_sync_replicas(
            self._cluster, (topic.name for topic in chosen), timeout=self._timeout
        )
        adding = {tp: moving.adding for tp, moving in self._reassignments_if_told().items()}
        return replace(self.view(), topics=chosen, min_isr=in_sync, adding=adding)

    def _reassignments_if_told(self) -> dict[TopicPartition, Reassignment]:
        try:
            return self.list_reassignments()
        except UnsupportedVersion:  # an old broker, or one without others
            return {}
        except (TimedOut, Unreachable):  # a controller that stands still; the others tell the rest
            return {}
