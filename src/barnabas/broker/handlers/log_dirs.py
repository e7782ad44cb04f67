"""DescribeLogDirs v1-4: the data directories of this broker and what lies in them.

AlterReplicaLogDirs v1-2: replicas of this broker go to other directories of its own. The answer says that a move has
begun; DescribeLogDirs shows how far it is. A wish for the directory that a replica is in ends its move, one for a
replica that is not here yet is remembered.
"""

import os
from collections import defaultdict
from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code
from barnabas.types import TopicPartition
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@handles(ApiKey.DESCRIBE_LOG_DIRS)
def describe_log_dirs(
    broker: "Broker", request: DescribeLogDirsRequest, peer: Connection
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = []
    for usage in broker.directories.usage():
        topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
        for tp, size in usage.partitions.items():
            if wanted is None or tp in wanted:
                topics[tp.topic].append(DescribeLogDirsPartition(tp.partition, size))
        for tp, future in usage.futures.items():
            if wanted is None or tp in wanted:
                row = DescribeLogDirsPartition(tp.partition, future.size, future.lag, is_future_key=True)
                topics[tp.topic].append(row)
        rows = [DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()]
        path = os.path.abspath(usage.path)
        results.append(DescribeLogDirsResult(usage.error, path, rows, usage.total, usage.usable))
    return DescribeLogDirsResponse(results=results)


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS)
async def alter_replica_log_dirs(
    broker: "Broker", request: AlterReplicaLogDirsRequest, peer: Connection
) -> AlterReplicaLogDirsResponse:
    # Of two wishes for a replica the last counts.
    wishes = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
    for tp, code in zip(wishes, await broker.moving.ask(list(wishes.items())), strict=True):
        if code is not Code.NONE:
            broker.metrics.api("AlterReplicaLogDirs").error(code)
        topics[tp.topic].append(AlterReplicaLogDirPartitionResult(tp.partition, code))
    rows = [AlterReplicaLogDirTopicResult(name, partitions) for name, partitions in topics.items()]
    return AlterReplicaLogDirsResponse(results=rows)
