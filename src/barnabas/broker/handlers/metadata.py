"""Metadata v0-12: brokers, topics, and the leader of each partition; creates unknown topics where allowed.

DescribeTopicPartitions v0 tells of topics page by page, in the order of their names, and creates none.
"""

import logging
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.cluster.controller import INTERNAL_TOPICS, WantedTopic, check_name
from barnabas.cluster.image import ClusterImage, TopicImage
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.metadata import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    TopicPartitionCursor,
)
from barnabas.wire.schema import NO_ID

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

log = logging.getLogger("barnabas.topics")

MOST_PARTITIONS = 2000
"""Of one page, whatever is asked for: Kafka's max.request.partition.size.limit."""


@handles(ApiKey.METADATA)
async def metadata(broker: "Broker", request: MetadataRequest, peer: Connection) -> MetadataResponse:
    if request.topics is None:
        topics = [_described(broker, topic) for topic in broker.metadata.image.topics.values()]
    else:
        create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
        topics = [await _asked_for(broker, wanted, create) for wanted in request.topics]
    image = broker.metadata.image
    return MetadataResponse(
        brokers=list(_brokers(image)),
        cluster_id=image.cluster_id,
        controller_id=image.controller,
        topics=topics,
    )


def _brokers(image: ClusterImage) -> Iterable[MetadataResponseBroker]:
    for broker in image.brokers.values():
        yield MetadataResponseBroker(broker.id, broker.host, broker.port, broker.rack)


async def _asked_for(broker: "Broker", wanted: MetadataRequestTopic, create: bool) -> MetadataResponseTopic:
    try:
        return _described(broker, await _found(broker, wanted, create))
    except Refused as refused:
        # No name rather than null: versions 10 and 11 know ids, but not null names.
        name = wanted.name or ""
        broker.note_refusal("Metadata", refused, name)
        return MetadataResponseTopic(refused.code, name, wanted.topic_id)


async def _found(broker: "Broker", wanted: MetadataRequestTopic, create: bool) -> TopicImage:
    image = broker.metadata.image
    if wanted.topic_id != NO_ID:
        found = image.topic_by_id(wanted.topic_id)
        if found is None:
            raise Refused(Code.UNKNOWN_TOPIC_ID)
        return found
    name = wanted.name or ""
    if name in image.topics:
        return image.topics[name]
    check_name(name)
    if not create or name in INTERNAL_TOPICS:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
    return await _created(broker, name)


async def _created(broker: "Broker", name: str) -> TopicImage:
    wanted = WantedTopic(name, uuid.uuid4())
    try:
        await broker.to_controller.create_topic(wanted)
        log.info("created topic %s because a client asked for it", name)
    except Refused as refused:
        if refused.code is not Code.TOPIC_ALREADY_EXISTS:
            raise
    topic = broker.metadata.image.topics.get(name)
    if topic is None:
        raise Refused(Code.LEADER_NOT_AVAILABLE)
    return topic


def _described(broker: "Broker", topic: TopicImage) -> MetadataResponseTopic:
    rows = []
    for index, partition in enumerate(topic.partitions):
        lost = partition.leader == broker.id and broker.replicas.find_leader(topic.name, index) is None
        rows.append(
            MetadataResponsePartition(
                Code.LEADER_NOT_AVAILABLE if lost else Code.NONE,
                index,
                -1 if lost else partition.leader,
                partition.leader_epoch,
                list(partition.replicas),
                list(partition.isr),
                [broker.id] if lost else [],
            )
        )
    return MetadataResponseTopic(0, topic.name, topic.id, topic.name in INTERNAL_TOPICS, rows)


@handles(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    lambda request, version, refused: DescribeTopicPartitionsResponse(
        topics=[DescribedTopic(refused.code, topic.name) for topic in request.topics]
    ),
)
def describe_topic_partitions(
    broker: "Broker", request: DescribeTopicPartitionsRequest, peer: Connection
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise Refused(Code.INVALID_REQUEST)
    wanted = {topic.name for topic in request.topics} or broker.metadata.image.topics.keys()
    left = min(max(request.response_partition_limit, 1), MOST_PARTITIONS)
    response = DescribeTopicPartitionsResponse()
    for name in sorted(wanted):
        begin = 0
        if cursor is not None and name <= cursor.topic_name:
            if name < cursor.topic_name:
                continue
            begin = cursor.partition_index
        if not left:
            response.next_cursor = TopicPartitionCursor(name, begin)
            break
        row = _page_of(broker, name, begin, left)
        response.topics.append(row)
        left -= len(row.partitions)
        topic = broker.metadata.image.topics.get(name)
        end = begin + len(row.partitions)
        if topic is not None and end < len(topic.partitions):
            response.next_cursor = TopicPartitionCursor(name, end)
            break
    return response


def _page_of(broker: "Broker", name: str, begin: int, limit: int) -> DescribedTopic:
    """Some partitions of a topic, from `begin` on."""
    topic = broker.metadata.image.topics.get(name)
    if topic is None:
        code = Code.UNKNOWN_TOPIC_OR_PARTITION
        try:
            check_name(name)
        except Refused as refused:
            code = refused.code
        return DescribedTopic(code, name)
    rows = [
        DescribedPartition(
            row.error_code,
            row.partition_index,
            row.leader_id,
            row.leader_epoch,
            row.replica_nodes,
            row.isr_nodes,
            list(topic.partitions[row.partition_index].elr),
            [],
            row.offline_replicas,
        )
        for row in _described(broker, topic).partitions[begin : begin + limit]
    ]
    return DescribedTopic(Code.NONE, name, topic.id, name in INTERNAL_TOPICS, rows)
