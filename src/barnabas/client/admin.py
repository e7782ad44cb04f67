"""Looks after topics, settings, records, groups and brokers. Used by the command line and by people's scripts.

Every method is one question and one typed answer; what a broker refuses is raised as `Refused`, with the Code
and a sentence that names the topic or setting.

    with Admin("localhost:9092") as admin:
        admin.create_topic("orders", partitions=4, configs={"retention.ms": "60000"})
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

from barnabas.client.cluster import Broker, Cluster, Topic
from barnabas.client.connection import Connection
from barnabas.client.failures import check
from barnabas.client.groups import (
    GroupDescription,
    GroupListing,
    alter_offsets,
    committed_offsets,
    delete_group,
    delete_offsets,
    describe_group,
    list_groups,
)
from barnabas.client.offsets import OffsetAt, list_offsets
from barnabas.client.resources import (
    ClusterDescription,
    Config,
    ConfigSource,
    CreatedTopic,
    LogDir,
    Operation,
    Resource,
    ResourceType,
    StoredPartition,
)
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import BrokerId, Offset, TopicPartition
from barnabas.wire.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


class Admin:
    """A connection to a cluster for looking after it."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        client_id: str = "barnabas-admin",
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 100,
    ) -> None:
        self._timeout_ms = request_timeout_ms
        self._timeout = request_timeout_ms / 1000
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
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
        wish = CreatableTopic(
            name=name,
            num_partitions=-1 if assignment else partitions,
            replication_factor=-1 if assignment else replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in (assignment or {}).items()
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest(topics=[wish], timeout_ms=self._timeout_ms, validate_only=validate_only)

        def ask() -> CreatedTopic:
            (found,) = (
                self._cluster.controller().call(request, CreateTopicsResponse, wait=self._timeout).topics
            )
            check(found.error_code, f"Topic {name!r}", found.error_message)
            return CreatedTopic(found.name, found.topic_id, found.num_partitions, found.replication_factor)

        return self._cluster.retry(ask, timeout=self._timeout)

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, in order."""
        found = self._cluster.retry(self._cluster.topics, timeout=self._timeout)
        return [topic.name for topic in found if include_internal or not topic.is_internal]

    def describe_topics(self, names: Iterable[str] | None = None) -> list[Topic]:
        """Topics with their partitions, as they are now; all of them when no names are given."""
        if names is None:
            return self._cluster.retry(self._cluster.topics, timeout=self._timeout)
        wanted = list(names)

        def ask() -> list[Topic]:
            self._cluster.refresh(wanted)
            return [self._cluster.topic(name) for name in wanted]

        return self._cluster.retry(ask, timeout=self._timeout)

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `total` partitions; there is no way back."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total)],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )

        def ask() -> None:
            answer = self._cluster.controller().call(request, CreatePartitionsResponse, wait=self._timeout)
            (found,) = answer.results
            check(found.error_code, f"Topic {topic!r}", found.error_message)

        self._cluster.retry(ask, timeout=self._timeout)
        self._cluster.forget()

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=self._timeout_ms
        )

        def ask() -> None:
            answer = self._cluster.controller().call(request, DeleteTopicsResponse, wait=self._timeout)
            (found,) = answer.responses
            check(found.error_code, f"Topic {name!r}", found.error_message)

        self._cluster.retry(ask, timeout=self._timeout)
        self._cluster.forget()

    # Settings

    def describe_configs(
        self, resource: Resource, names: Iterable[str] | None = None, *, documentation: bool = False
    ) -> list[Config]:
        """The settings of a topic or a broker, in order of their names."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None if names is None else list(names),
                )
            ],
            include_documentation=documentation,
        )

        def ask() -> list[Config]:
            (found,) = self._keeper_of(resource).call(request, DescribeConfigsResponse).results
            check(found.error_code, str(resource), found.error_message)
            return sorted(map(_config, found.configs), key=lambda config: config.name)

        return self._cluster.retry(ask, timeout=self._timeout)

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
        wishes = [
            (name, Operation.DELETE if value is None else Operation.SET, value)
            for name, value in changes.items()
        ]
        wishes += [(name, Operation.APPEND, value) for name, value in (append or {}).items()]
        wishes += [(name, Operation.SUBTRACT, value) for name, value in (subtract or {}).items()]
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
                        for name, operation, value in wishes
                    ],
                )
            ],
            validate_only=validate_only,
        )

        def ask() -> None:
            (found,) = self._keeper_of(resource).call(request, IncrementalAlterConfigsResponse).responses
            check(found.error_code, str(resource), found.error_message)

        self._cluster.retry(ask, timeout=self._timeout)

    # Records

    def delete_records(self, below: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Delete what is below an offset of each partition (-1: all); the answer is where each log starts."""

        def ask() -> dict[TopicPartition, Offset]:
            starts: dict[TopicPartition, Offset] = {}
            for connection, partitions in self._cluster.by_leader(below).items():
                topics: dict[str, DeleteRecordsTopic] = {}
                for partition in partitions:
                    topic = topics.setdefault(partition.topic, DeleteRecordsTopic(name=partition.topic))
                    topic.partitions.append(
                        DeleteRecordsPartition(partition_index=partition.partition, offset=below[partition])
                    )
                request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._timeout_ms)
                for each in connection.call(request, DeleteRecordsResponse, wait=self._timeout).topics:
                    for found in each.partitions:
                        partition = TopicPartition(each.name, found.partition_index)
                        check(found.error_code, f"Partition {partition}")
                        starts[partition] = Offset(found.low_watermark)
            return starts

        return self._cluster.retry(ask, timeout=self._timeout)

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        """The first offset at or after a timestamp, or offsets.LATEST, EARLIEST, MAX_TIMESTAMP."""
        return list_offsets(self._cluster, wanted, timeout=self._timeout)

    # Groups

    def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """All groups, or those in these states and of these types (classic, consumer)."""
        return list_groups(self._cluster, states, types, timeout=self._timeout)

    def describe_group(self, group: str) -> GroupDescription:
        """A group with its members and what is assigned to them."""
        return describe_group(self._cluster, group, timeout=self._timeout)

    def delete_group(self, group: str) -> None:
        """Delete a group that nobody is in, and what it has committed."""
        delete_group(self._cluster, group, timeout=self._timeout)

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Offset]:
        """What a group has committed, of these partitions or of all."""
        return committed_offsets(self._cluster, group, partitions, timeout=self._timeout)

    def alter_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit for a group that nobody is in: where it will go on reading."""
        alter_offsets(self._cluster, group, offsets, timeout=self._timeout)

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group has committed of partitions that nobody in it subscribes to."""
        delete_offsets(self._cluster, group, partitions, timeout=self._timeout)

    # Brokers

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers."""

        def ask() -> ClusterDescription:
            found = self._cluster.any().call(DescribeClusterRequest(), DescribeClusterResponse)
            check(found.error_code, "The cluster", found.error_message)
            brokers = (
                Broker(BrokerId(each.broker_id), each.host, each.port, each.rack) for each in found.brokers
            )
            ordered = tuple(sorted(brokers, key=lambda broker: broker.id))
            return ClusterDescription(found.cluster_id, BrokerId(found.controller_id), ordered)

        return self._cluster.retry(ask, timeout=self._timeout)

    def describe_log_dirs(self, brokers: Iterable[int] | None = None) -> list[LogDir]:
        """The data directories of these brokers, or of all, and what lies in them."""

        def ask() -> list[LogDir]:
            known = self._cluster.brokers()
            wanted = [broker.id for broker in known] if brokers is None else list(brokers)
            return [each for broker in wanted for each in self._log_dirs(broker)]

        return self._cluster.retry(ask, timeout=self._timeout)

    def _log_dirs(self, broker: int) -> list[LogDir]:
        answer = self._cluster.connection(broker).call(DescribeLogDirsRequest(), DescribeLogDirsResponse)
        check(answer.error_code, f"Broker {broker}")
        return [
            LogDir(
                BrokerId(broker),
                found.log_dir,
                Code.of(found.error_code),
                found.total_bytes,
                found.usable_bytes,
                tuple(
                    StoredPartition(
                        TopicPartition(topic.name, each.partition_index),
                        each.partition_size,
                        each.offset_lag,
                        each.is_future_key,
                    )
                    for topic in found.topics
                    for each in topic.partitions
                ),
            )
            for found in answer.results
        ]

    def _keeper_of(self, resource: Resource) -> Connection:
        """Who to ask about settings: a broker itself for its own, any broker for everything else."""
        if resource.type is not ResourceType.BROKER or not resource.name:
            return self._cluster.any()
        if not resource.name.isdigit():
            raise BarnabasError(f"A broker's name is its number, not {resource.name!r}.")
        if int(resource.name) not in [broker.id for broker in self._cluster.brokers()]:
            raise Refused(Code.RESOURCE_NOT_FOUND, f"There is no broker {resource.name} in the cluster.")
        return self._cluster.connection(int(resource.name))


def _config(found: DescribeConfigsResourceResult) -> Config:
    return Config(
        found.name,
        found.value,
        ConfigSource(found.config_source),
        found.read_only,
        found.is_sensitive,
        found.documentation,
    )
