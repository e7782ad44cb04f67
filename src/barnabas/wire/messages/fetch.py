"""Fetch: offsets in, record batches out, also between brokers (replica_id, diverging_epoch).

From 13 on topics have ids in place of names, from 15 on a replica tells its broker epoch. Clients are offered 12.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar
from uuid import UUID

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import (
    NO_ID,
    Chunk,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    Since,
    String,
    Tag,
    Until,
    Uuid,
)


@dataclass(slots=True)
class FetchPartition:
    partition: Annotated[int, Int32] = 0
    current_leader_epoch: Annotated[int, Int32, Since(9)] = -1
    fetch_offset: Annotated[int, Int64] = 0
    last_fetched_epoch: Annotated[int, Int32, Since(12)] = -1
    log_start_offset: Annotated[int, Int64, Since(5)] = -1
    partition_max_bytes: Annotated[int, Int32] = 0
    replica_directory_id: Annotated[UUID, Uuid, Tag(0), Since(17)] = NO_ID


@dataclass(slots=True)
class FetchTopic:
    topic: Annotated[str, String, Until(12)] = ""
    topic_id: Annotated[UUID, Uuid, Since(13)] = field(default=NO_ID, kw_only=True)
    partitions: list[FetchPartition] = field(default_factory=list)


@dataclass(slots=True)
class ForgottenTopic:
    topic: Annotated[str, String, Until(12)] = ""
    topic_id: Annotated[UUID, Uuid, Since(13)] = field(default=NO_ID, kw_only=True)
    partitions: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class ReplicaState:
    replica_id: Annotated[int, Int32] = -1
    replica_epoch: Annotated[int, Int64] = -1


@dataclass(slots=True)
class FetchRequest:
    api: ClassVar[ApiKey] = ApiKey.FETCH

    cluster_id: Annotated[str | None, String, Tag(0), Since(12)] = None
    replica_id: Annotated[int, Int32, Until(14)] = -1
    replica_state: Annotated[ReplicaState | None, Tag(1), Since(15)] = field(default=None, kw_only=True)
    max_wait_ms: Annotated[int, Int32] = 0
    min_bytes: Annotated[int, Int32] = 0
    max_bytes: Annotated[int, Int32] = 0x7FFFFFFF
    isolation_level: Annotated[int, Int8] = 0
    session_id: Annotated[int, Int32, Since(7)] = 0
    session_epoch: Annotated[int, Int32, Since(7)] = -1
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: Annotated[list[ForgottenTopic], Since(7)] = field(default_factory=list)
    rack_id: Annotated[str, String, Since(11)] = ""


@dataclass(slots=True)
class EpochEndOffset:
    epoch: Annotated[int, Int32] = -1
    end_offset: Annotated[int, Int64] = -1


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: Annotated[int, Int32] = -1
    leader_epoch: Annotated[int, Int32] = -1


@dataclass(slots=True)
class SnapshotId:
    end_offset: Annotated[int, Int64] = -1
    epoch: Annotated[int, Int32] = -1


@dataclass(slots=True)
class AbortedTransaction:
    producer_id: Annotated[int, Int64] = 0
    first_offset: Annotated[int, Int64] = 0


@dataclass(slots=True)
class FetchPartitionResponse:
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    high_watermark: Annotated[int, Int64] = 0
    last_stable_offset: Annotated[int, Int64] = -1
    log_start_offset: Annotated[int, Int64, Since(5)] = -1
    diverging_epoch: Annotated[EpochEndOffset | None, Tag(0), Since(12)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, Tag(1), Since(12)] = None
    snapshot_id: Annotated[SnapshotId | None, Tag(2), Since(12)] = None
    aborted_transactions: list[AbortedTransaction] | None = None
    preferred_read_replica: Annotated[int, Int32, Since(11)] = -1
    records: Annotated[Chunk | None, Records] = None


@dataclass(slots=True)
class FetchTopicResponse:
    topic: Annotated[str, String, Until(12)] = ""
    topic_id: Annotated[UUID, Uuid, Since(13)] = field(default=NO_ID, kw_only=True)
    partitions: list[FetchPartitionResponse] = field(default_factory=list)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: Annotated[int, Int32] = 0
    host: Annotated[str, String] = ""
    port: Annotated[int, Int32] = 0
    rack: Annotated[str | None, String] = None


@dataclass(slots=True)
class FetchResponse:
    api: ClassVar[ApiKey] = ApiKey.FETCH

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16, Since(7)] = 0
    session_id: Annotated[int, Int32, Since(7)] = 0
    responses: list[FetchTopicResponse] = field(default_factory=list)
    node_endpoints: Annotated[list[NodeEndpoint], Tag(0), Since(16)] = field(default_factory=list)
