"""DescribeLogDirs and AlterReplicaLogDirs: the data directories of one broker, what lies and what is to lie in them."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Bool, Int16, Int32, Int64, Since, String


@dataclass(slots=True)
class DescribableLogDirTopic:
    topic: Annotated[str, String] = ""
    partitions: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class DescribeLogDirsRequest:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_LOG_DIRS

    topics: list[DescribableLogDirTopic] | None = None


@dataclass(slots=True)
class DescribeLogDirsPartition:
    partition_index: Annotated[int, Int32] = 0
    partition_size: Annotated[int, Int64] = 0
    offset_lag: Annotated[int, Int64] = 0
    is_future_key: Annotated[bool, Bool] = False


@dataclass(slots=True)
class DescribeLogDirsTopic:
    name: Annotated[str, String] = ""
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)


@dataclass(slots=True)
class DescribeLogDirsResult:
    error_code: Annotated[int, Int16] = 0
    log_dir: Annotated[str, String] = ""
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: Annotated[int, Int64, Since(4)] = -1
    usable_bytes: Annotated[int, Int64, Since(4)] = -1


@dataclass(slots=True)
class DescribeLogDirsResponse:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_LOG_DIRS

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16, Since(3)] = 0
    results: list[DescribeLogDirsResult] = field(default_factory=list)


@dataclass(slots=True)
class AlterReplicaLogDirTopic:
    name: Annotated[str, String] = ""
    partitions: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class AlterReplicaLogDir:
    path: Annotated[str, String] = ""
    topics: list[AlterReplicaLogDirTopic] = field(default_factory=list)


@dataclass(slots=True)
class AlterReplicaLogDirsRequest:
    api: ClassVar[ApiKey] = ApiKey.ALTER_REPLICA_LOG_DIRS

    dirs: list[AlterReplicaLogDir] = field(default_factory=list)


@dataclass(slots=True)
class AlterReplicaLogDirPartitionResult:
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class AlterReplicaLogDirTopicResult:
    topic_name: Annotated[str, String] = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class AlterReplicaLogDirsResponse:
    api: ClassVar[ApiKey] = ApiKey.ALTER_REPLICA_LOG_DIRS

    throttle_time_ms: Annotated[int, Int32] = 0
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)
