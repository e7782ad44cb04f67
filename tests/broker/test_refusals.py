"""Sentences that refuse something keep the words that scripts look for in what Kafka's tools print."""

from typing import Any

import pytest

from barnabas.broker.router import refusal_of
from barnabas.errors import Code, Refused
from barnabas.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.speaking import create
from tests.raw import RawConnection


@pytest.mark.parametrize(
    ("code", "words"),
    [
        *((code, ["invalid"]) for code in Code if code.name.startswith("INVALID_")),
        *((code, ["does not exist"]) for code in Code if code.name.endswith("_NOT_FOUND")),
        (Code.TOPIC_ALREADY_EXISTS, ["already exists"]),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, ["does not exist"]),
        (Code.UNKNOWN_TOPIC_ID, ["does not exist"]),
        (Code.INVALID_REPLICATION_FACTOR, ["invalid", "replication factor"]),
    ],
)
def test_a_codes_own_sentence(code: Code, words: list[str]) -> None:
    assert [word for word in words if word not in code.advice] == []


def made(**facts: Any) -> CreateTopicsRequest:
    facts = {"name": "fresh", "num_partitions": 1, "replication_factor": 1, **facts}
    return CreateTopicsRequest([CreatableTopic(**facts)], 30_000)


def setting(name: str, value: str) -> CreateTopicsRequest:
    return made(configs=[CreatableTopicConfig(name, value)])


def assigned(*rows: tuple[int, list[int]]) -> CreateTopicsRequest:
    assignments = [CreatableReplicaAssignment(index, brokers) for index, brokers in rows]
    return made(num_partitions=-1, replication_factor=-1, assignments=assignments)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (made(name="{topic}"), ["already exists", "'{topic}'"]),
        (made(name="a b"), ["name", "invalid"]),
        (made(name=""), ["name", "invalid"]),
        (made(name=".."), ["name", "invalid"]),
        (made(name="x" * 250), ["name", "invalid"]),
        (made(replication_factor=3), ["replication factor", "invalid"]),
        (made(replication_factor=0), ["replication factor", "invalid"]),
        (made(num_partitions=0), ["partitions", "invalid"]),
        (setting("retention.ms", "soon"), ["invalid", "retention.ms"]),
        (setting("cleanup.policy", "burn"), ["invalid", "cleanup.policy"]),
        (setting("no.such", "1"), ["does not exist", "no.such"]),
        (assigned((0, [99])), ["invalid", "does not exist"]),
        (assigned((1, [0])), ["invalid"]),
        (assigned((0, [])), ["invalid"]),
    ],
)
def test_making_a_topic(connection: RawConnection, topic: str, request_: Any, words: list[str]) -> None:
    create(connection, topic)
    request_.topics[0].name = request_.topics[0].name.format(topic=topic)
    (row,) = connection.ask(request_, 7).topics
    assert row.error_code
    missing = [word for word in words if word.format(topic=topic) not in row.error_message]
    assert missing == [], row.error_message
    request_.topics[0].name = request_.topics[0].name.replace(topic, "{topic}")


def test_what_is_done_with_a_topic_that_is_not_there(connection: RawConnection) -> None:
    deleted = connection.ask(DeleteTopicsRequest([DeleteTopicState("nowhere")], timeout_ms=1000), 6)
    grown = connection.ask(CreatePartitionsRequest([CreatePartitionsTopic("nowhere", 3)], 1000), 3)
    wish = IncrementalAlterConfigsResource(2, "nowhere", [IncrementalAlterableConfig("retention.ms", 0, "1")])
    altered = connection.ask(IncrementalAlterConfigsRequest([wish]), 1)
    for row in (deleted.responses[0], grown.results[0], altered.responses[0]):
        assert "does not exist" in row.error_message


@pytest.mark.parametrize("count", [1, 2])
def test_partitions_that_do_not_become_more(connection: RawConnection, topic: str, count: int) -> None:
    create(connection, topic, 2)
    (row,) = connection.ask(CreatePartitionsRequest([CreatePartitionsTopic(topic, count)], 1000), 3).results
    assert row.error_code == Code.INVALID_PARTITIONS
    assert "invalid" in row.error_message


@pytest.mark.parametrize(
    "request_",
    [
        CreateTopicsRequest([CreatableTopic("t")]),
        DeleteTopicsRequest([DeleteTopicState("t")]),
        CreatePartitionsRequest([CreatePartitionsTopic("t")]),
        AlterConfigsRequest([AlterConfigsResource(2, "t")]),
        IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(2, "t")]),
    ],
    ids=lambda request_: type(request_).__name__,
)
def test_what_no_controller_could_be_asked_for_is_refused_one_by_one(request_: Any) -> None:
    answer = refusal_of(request_, 1, Refused(Code.NOT_CONTROLLER))
    (row,) = getattr(answer, "topics", None) or getattr(answer, "results", None) or answer.responses
    assert row.error_code == Code.NOT_CONTROLLER
    assert "t" in (getattr(row, "name", None), getattr(row, "resource_name", None))
