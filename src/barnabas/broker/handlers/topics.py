"""CreateTopics v2-7, DeleteTopics v1-6, CreatePartitions v0-3. The controller decides, topic by topic.

The topics of a request are asked for at once: all of them have the time that its client gives.
"""

import asyncio
import logging
import uuid
from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.broker.metadata import Decision
from barnabas.broker.network.connection import Connection
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


def _no_topic_made(request: CreateTopicsRequest, version: int, refused: Refused) -> CreateTopicsResponse:
    """What all are told where no controller could be asked."""
    rows = [
        CreatableTopicResult(t.name, error_code=refused.code, error_message=refused.message)
        for t in request.topics
    ]
    return CreateTopicsResponse(topics=rows)


@handles(ApiKey.CREATE_TOPICS, _no_topic_made, by_controller=True)
async def create_topics(
    broker: "Broker", request: CreateTopicsRequest, peer: Connection
) -> CreateTopicsResponse:
    topics = {topic.name: topic for topic in request.topics}
    named = Counter(topic.name for topic in request.topics)

    async def result(name: str) -> CreatableTopicResult:
        try:
            _check_once(name, named[name])
            return await _create(broker, topics[name], request)
        except Refused as refused:
            broker.note_refusal("CreateTopics", refused, name)
            return CreatableTopicResult(name, error_code=refused.code, error_message=refused.message)

    return CreateTopicsResponse(topics=await asyncio.gather(*map(result, topics)))


def _check_once(name: str, times: int) -> None:
    if times > 1:
        raise Refused(
            Code.INVALID_REQUEST, f"The request is invalid: topic {name!r} is named {times} times in it."
        )


async def change_in_time(broker: "Broker", decide: Decision, timeout_ms: int) -> None:
    """Wait for a change as long as its client does. What takes longer goes on, if its turn has come."""
    try:
        await asyncio.wait_for(broker.metadata.change(decide), timeout_ms / 1000 if timeout_ms > 0 else None)
    except TimeoutError:
        raise Refused(
            Code.REQUEST_TIMED_OUT,
            f"This takes longer than the {timeout_ms} ms allowed; it may still be done.",
        ) from None


async def _create(
    broker: "Broker", topic: CreatableTopic, request: CreateTopicsRequest
) -> CreatableTopicResult:
    indexes = [assignment.partition_index for assignment in topic.assignments]
    if len(set(indexes)) != len(indexes):
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            "The replica assignment is invalid: a partition is assigned twice.",
        )
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
    if not request.validate_only:
        await change_in_time(
            broker, lambda image: create_topic(image, wanted, broker.config), request.timeout_ms
        )
        log.info("created topic %s with %d partitions", made.name, len(made.partitions))
    configs = [
        CreatableTopicConfigs(row.name, row.value, row.read_only, row.source, False)
        for row in broker.levels(broker.metadata.image).topic(made)
    ]
    return CreatableTopicResult(
        made.name,
        NO_ID if request.validate_only else made.id,
        num_partitions=len(made.partitions),
        replication_factor=len(made.partitions[0].replicas),
        configs=configs,
    )


def _no_topic_deleted(request: DeleteTopicsRequest, version: int, refused: Refused) -> DeleteTopicsResponse:
    wanted = request.topics or [DeleteTopicState(name) for name in request.topic_names]
    rows = [DeletableTopicResult(t.name, t.topic_id, refused.code, refused.message) for t in wanted]
    return DeleteTopicsResponse(responses=rows)


@handles(ApiKey.DELETE_TOPICS, _no_topic_deleted, by_controller=True)
async def delete_topics(
    broker: "Broker", request: DeleteTopicsRequest, peer: Connection
) -> DeleteTopicsResponse:
    image = broker.metadata.image
    wanted = request.topics or [DeleteTopicState(name) for name in request.topic_names]
    named = Counter(_name_and_id(image, state) for state in wanted)
    states = {_name_and_id(image, state): state for state in wanted}

    async def result(key: tuple[str | None, UUID]) -> DeletableTopicResult:
        name, topic_id = key
        shown = name or str(topic_id)
        try:
            _check_once(shown, named[key])
            return await _delete(broker, states[key], request.timeout_ms)
        except Refused as refused:
            broker.note_refusal("DeleteTopics", refused, shown)
            return DeletableTopicResult(name, topic_id, refused.code, refused.message)

    return DeleteTopicsResponse(responses=await asyncio.gather(*map(result, states)))


def _name_and_id(image: ClusterImage, state: DeleteTopicState) -> tuple[str | None, UUID]:
    """Both, where the topic exists: a request can name it by the one and by the other."""
    found = image.topic_by_id(state.topic_id) if state.name is None else image.topics.get(state.name)
    return (state.name, state.topic_id) if found is None else (found.name, found.id)


async def _delete(broker: "Broker", state: DeleteTopicState, timeout_ms: int) -> DeletableTopicResult:
    name, topic_id = state.name, state.topic_id
    if (name is None) == (topic_id == NO_ID):
        raise Refused(
            Code.INVALID_REQUEST, "The request is invalid: a topic is named either by its name or by its id."
        )
    if name is None:
        found = broker.metadata.image.topic_by_id(topic_id)
        if found is None:
            raise Refused(Code.UNKNOWN_TOPIC_ID)
        name = found.name
    gone = name
    image = broker.metadata.image
    await change_in_time(broker, lambda image: delete_topic(image, gone, broker.config), timeout_ms)
    log.info("deleted topic %s", gone)
    return DeletableTopicResult(gone, image.topics[gone].id if gone in image.topics else topic_id)


def _no_partition_made(
    request: CreatePartitionsRequest, version: int, refused: Refused
) -> CreatePartitionsResponse:
    rows = [CreatePartitionsTopicResult(t.name, refused.code, refused.message) for t in request.topics]
    return CreatePartitionsResponse(results=rows)


@handles(ApiKey.CREATE_PARTITIONS, _no_partition_made, by_controller=True)
async def create_partitions(
    broker: "Broker", request: CreatePartitionsRequest, peer: Connection
) -> CreatePartitionsResponse:
    topics = {topic.name: topic for topic in request.topics}
    named = Counter(topic.name for topic in request.topics)

    async def result(name: str) -> CreatePartitionsTopicResult:
        try:
            _check_once(name, named[name])
            await _add_partitions(broker, topics[name], request)
            return CreatePartitionsTopicResult(name)
        except Refused as refused:
            broker.note_refusal("CreatePartitions", refused, name)
            return CreatePartitionsTopicResult(name, refused.code, refused.message)

    return CreatePartitionsResponse(results=await asyncio.gather(*map(result, topics)))


async def _add_partitions(
    broker: "Broker", topic: CreatePartitionsTopic, request: CreatePartitionsRequest
) -> None:
    assignments = None
    if topic.assignments is not None:
        assignments = [assignment.broker_ids for assignment in topic.assignments]
    if request.validate_only:
        add_partitions(broker.metadata.image, topic.name, topic.count, assignments)
        return
    await change_in_time(
        broker,
        lambda image: add_partitions(image, topic.name, topic.count, assignments),
        request.timeout_ms,
    )
    log.info("topic %s has %d partitions now", topic.name, topic.count)
