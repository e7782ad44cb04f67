"""DescribeLogDirs v1-4: the data directories of this broker and what lies in them."""

from collections import defaultdict
from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.log_dirs import (
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
        rows = [DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()]
        results.append(DescribeLogDirsResult(usage.error, usage.path, rows, usage.total, usage.usable))
    return DescribeLogDirsResponse(results=results)
