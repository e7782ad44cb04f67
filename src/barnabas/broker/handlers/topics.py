"""CreateTopics v2-7, DeleteTopics v1-6, CreatePartitions v0-3. The controller decides, topic by topic."""

import logging
import uuid
from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.broker.connection import Connection
from barnabas.broker.router import handles
from barnabas.cluster.controller import WantedTopic, add_partitions, create_topic, delete_topic
from barnabas.cluster.image import ClusterImage
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.schema import NO_ID

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

log = logging.getLogger("barnabas.topics")


@handles(ApiKey.CREATE_TOPICS)
async def create_topics(
    broker: "Broker", request: CreateTopicsRequest, peer: Connection
) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = []
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        try:
            _check_once(name, named[name])
            results.append(await _create(broker, topic, request.validate_only))
        except Refused as refused:
            broker.note_refusal("CreateTopics", refused, name)
            results.append(CreatableTopicResult(name, error_code=refused.code, error_message=refused.message))
    return CreateTopicsResponse(topics=results)


def _check_once(name: str, times: int) -> None:
    if times > 1:
        raise Refused(Code.INVALID_REQUEST, f"Topic {name!r} is named {times} times in one request.")


async def _create(broker: "Broker", topic: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
    indexes = [assignment.partition_index for assignment in topic.assignments]
    if len(set(indexes)) != len(indexes):
        raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned twice.")
    wanted = WantedTopic(
        topic.name,
        uuid.uuid4(),
        topic.num_partitions,
        topic.replication_factor,
        {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments},
        {config.name: config.value for config in topic.configs},
    )
    made = broker.metadata.image.after(create_topic(broker.metadata.image, wanted, broker.config)).topics[
        topic.name
    ]
    if not validate_only:
        await broker.metadata.change(lambda image: create_topic(image, wanted, broker.config))
        log.info("created topic %s with %d partitions", made.name, len(made.partitions))
    configs = [
        CreatableTopicConfigs(row.name, row.value, row.read_only, row.source, False)
        for row in broker.levels(broker.metadata.image).topic(made)
    ]
    return CreatableTopicResult(
        made.name,
        NO_ID if validate_only else made.id,
        num_partitions=len(made.partitions),
        replication_factor=len(made.partitions[0].replicas),
        configs=configs,
    )


@handles(ApiKey.DELETE_TOPICS)
async def delete_topics(
    broker: "Broker", request: DeleteTopicsRequest, peer: Connection
) -> DeleteTopicsResponse:
    image = broker.metadata.image
    wanted = request.topics or [DeleteTopicState(name) for name in request.topic_names]
    named = Counter(_name_and_id(image, state) for state in wanted)
    results = []
    for (name, topic_id), state in {_name_and_id(image, state): state for state in wanted}.items():
        shown = name or str(topic_id)
        try:
            _check_once(shown, named[name, topic_id])
            results.append(await _delete(broker, state.name, state.topic_id))
        except Refused as refused:
            broker.note_refusal("DeleteTopics", refused, shown)
            results.append(DeletableTopicResult(name, topic_id, refused.code, refused.message))
    return DeleteTopicsResponse(responses=results)


def _name_and_id(image: ClusterImage, state: DeleteTopicState) -> tuple[str | None, UUID]:
    """Both, where the topic exists: a request can name it by the one and by the other."""
    found = image.topic_by_id(state.topic_id) if state.name is None else image.topics.get(state.name)
    return (state.name, state.topic_id) if found is None else (found.name, found.id)


async def _delete(broker: "Broker", name: str | None, topic_id: UUID) -> DeletableTopicResult:
    if (name is None) == (topic_id == NO_ID):
        raise Refused(Code.INVALID_REQUEST, "Name the topic to delete either by its name or by its id.")
    if name is None:
        found = broker.metadata.image.topic_by_id(topic_id)
        if found is None:
            raise Refused(Code.UNKNOWN_TOPIC_ID)
        name = found.name
    gone = name
    image = broker.metadata.image
    await broker.metadata.change(lambda image: delete_topic(image, gone, broker.config))
    log.info("deleted topic %s", gone)
    return DeletableTopicResult(gone, image.topics[gone].id if gone in image.topics else topic_id)


@handles(ApiKey.CREATE_PARTITIONS)
async def create_partitions(
    broker: "Broker", request: CreatePartitionsRequest, peer: Connection
) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = []
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        result = CreatePartitionsTopicResult(name)
        try:
            _check_once(name, named[name])
            await _add_partitions(broker, topic, request.validate_only)
        except Refused as refused:
            broker.note_refusal("CreatePartitions", refused, name)
            result.error_code, result.error_message = refused.code, refused.message
        results.append(result)
    return CreatePartitionsResponse(results=results)


async def _add_partitions(broker: "Broker", topic: CreatePartitionsTopic, validate_only: bool) -> None:
    assignments = None
    if topic.assignments is not None:
        assignments = [assignment.broker_ids for assignment in topic.assignments]
    if validate_only:
        add_partitions(broker.metadata.image, topic.name, topic.count, assignments)
        return
    await broker.metadata.change(lambda image: add_partitions(image, topic.name, topic.count, assignments))
    log.info("topic %s has %d partitions now", topic.name, topic.count)
