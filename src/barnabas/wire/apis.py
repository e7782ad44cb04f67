"""Owns the table of the APIs we speak: their keys, versions, and where their messages live.

Read by the codec (which versions are flexible), by frames (which header goes with a version), by the
broker (what to announce) and by the client. Importing it imports no message: a family's module comes in
when it is first asked for.
"""

from enum import IntEnum
from importlib import import_module
from typing import Any, NamedTuple


class ApiKey(IntEnum):
    """The number a request begins with."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    ALTER_PARTITION = 56
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


NO_VERSION = 1 << 15
"""Above every version: what begins with it never begins (an API without flexible versions, a field that is never null),
and what lasts until it never ends."""


BETWEEN_BROKERS = -1
"""The highest version that clients are offered of what brokers say to each other."""


class Versions(NamedTuple):
    """What the codec needs to know of a thing that has versions."""

    lowest: int
    highest: int
    flexible: int

    def speaks(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


class Api(NamedTuple):
    """One API: versions `lowest` to `highest` are spoken, from `flexible` on in the compact encoding.

    Clients are offered versions up to `offered`; brokers speak all of them with each other.
    """

    key: ApiKey
    name: str
    lowest: int
    highest: int
    flexible: int
    family: str
    """The module under wire/messages/."""
    announced_lowest: int
    offered: int
    """The highest version that clients are told of; -1 where the API is between brokers only."""

    def speaks(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


def _api(
    key: ApiKey,
    name: str,
    versions: tuple[int, int],
    flexible: int,
    family: str,
    announced: int | None = None,
    offered: int | None = None,
) -> Api:
    lowest, highest = versions
    return Api(
        key,
        name,
        lowest,
        highest,
        flexible,
        family,
        lowest if announced is None else announced,
        highest if offered is None else offered,
    )


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        # Older librdkafka switches compression off unless Produce is announced from 0 on.
        _api(ApiKey.PRODUCE, "Produce", (3, 12), 9, "produce", announced=0),
        _api(ApiKey.FETCH, "Fetch", (4, 17), 12, "fetch", offered=12),
        _api(ApiKey.LIST_OFFSETS, "ListOffsets", (1, 9), 6, "list_offsets"),
        _api(ApiKey.METADATA, "Metadata", (0, 12), 9, "metadata"),
        _api(ApiKey.LEADER_AND_ISR, "LeaderAndIsr", (4, 7), 4, "controlling", offered=BETWEEN_BROKERS),
        _api(ApiKey.STOP_REPLICA, "StopReplica", (3, 4), 2, "controlling", offered=BETWEEN_BROKERS),
        _api(ApiKey.UPDATE_METADATA, "UpdateMetadata", (6, 8), 6, "controlling", offered=BETWEEN_BROKERS),
        _api(
            ApiKey.CONTROLLED_SHUTDOWN,
            "ControlledShutdown",
            (3, 3),
            3,
            "controlling",
            offered=BETWEEN_BROKERS,
        ),
        _api(ApiKey.OFFSET_COMMIT, "OffsetCommit", (2, 9), 8, "offsets"),
        _api(ApiKey.OFFSET_FETCH, "OffsetFetch", (1, 9), 6, "offsets"),
        _api(ApiKey.FIND_COORDINATOR, "FindCoordinator", (0, 4), 3, "coordinator"),
        _api(ApiKey.JOIN_GROUP, "JoinGroup", (0, 9), 6, "groups"),
        _api(ApiKey.HEARTBEAT, "Heartbeat", (0, 4), 4, "groups"),
        _api(ApiKey.LEAVE_GROUP, "LeaveGroup", (0, 5), 4, "groups"),
        _api(ApiKey.SYNC_GROUP, "SyncGroup", (0, 5), 4, "groups"),
        _api(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", (0, 5), 5, "groups"),
        _api(ApiKey.LIST_GROUPS, "ListGroups", (0, 5), 3, "groups"),
        _api(ApiKey.API_VERSIONS, "ApiVersions", (0, 4), 3, "api_versions"),
        _api(ApiKey.CREATE_TOPICS, "CreateTopics", (2, 7), 5, "topics"),
        _api(ApiKey.DELETE_TOPICS, "DeleteTopics", (1, 6), 4, "topics"),
        _api(ApiKey.DELETE_RECORDS, "DeleteRecords", (0, 2), 2, "delete_records"),
        _api(ApiKey.INIT_PRODUCER_ID, "InitProducerId", (0, 6), 2, "producers"),
        _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", (2, 4), 4, "epochs"),
        _api(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", (0, 5), 3, "transactions"),
        _api(ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", (0, 4), 3, "transactions"),
        _api(ApiKey.END_TXN, "EndTxn", (0, 5), 3, "transactions"),
        _api(ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", (1, 2), 1, "txn_markers"),
        _api(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", (0, 5), 3, "transactions"),
        _api(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", (1, 4), 4, "configs"),
        _api(ApiKey.ALTER_CONFIGS, "AlterConfigs", (0, 2), 2, "configs"),
        _api(ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", (1, 2), 2, "log_dirs"),
        _api(ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", (1, 4), 2, "log_dirs"),
        _api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", (0, 3), 2, "topics"),
        _api(ApiKey.DELETE_GROUPS, "DeleteGroups", (0, 2), 2, "groups"),
        _api(ApiKey.ELECT_LEADERS, "ElectLeaders", (0, 2), 2, "placement"),
        _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", (0, 1), 1, "configs"),
        _api(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            "AlterPartitionReassignments",
            (0, 1),
            0,
            "placement",
        ),
        _api(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            "ListPartitionReassignments",
            (0, 0),
            0,
            "placement",
        ),
        _api(ApiKey.OFFSET_DELETE, "OffsetDelete", (0, 0), NO_VERSION, "offsets"),
        _api(ApiKey.ALTER_PARTITION, "AlterPartition", (3, 3), 0, "controlling", offered=BETWEEN_BROKERS),
        _api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", (0, 1), 0, "cluster"),
        _api(ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", (0, 0), 0, "producers"),
        _api(ApiKey.UNREGISTER_BROKER, "UnregisterBroker", (0, 0), 0, "cluster"),
        _api(ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", (0, 0), 0, "transactions"),
        _api(ApiKey.LIST_TRANSACTIONS, "ListTransactions", (0, 2), 0, "transactions"),
        _api(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            "AllocateProducerIds",
            (0, 0),
            0,
            "producers",
            offered=BETWEEN_BROKERS,
        ),
        _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", (0, 1), 0, "consumer_groups"),
        _api(ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", (0, 1), 0, "consumer_groups"),
        _api(ApiKey.LIST_CONFIG_RESOURCES, "ListConfigResources", (0, 1), 0, "configs"),
        _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", (0, 0), 0, "metadata"),
    )
}

_classes: dict[tuple[int, str], type[Any]] = {}


def request_class(key: int) -> type[Any]:
    """The class of this API's requests."""
    return _class(key, "Request")


def response_class(key: int) -> type[Any]:
    """The class of this API's responses."""
    return _class(key, "Response")


def _class(key: int, side: str) -> type[Any]:
    cls = _classes.get((key, side))
    if cls is None:
        api = APIS[key]
        module = import_module(f"barnabas.wire.messages.{api.family}")
        cls = _classes[key, side] = getattr(module, api.name + side)
    return cls
