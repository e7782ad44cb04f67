"""Topics and their settings over the wire: created, described, changed and deleted as with Kafka."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster.configs import ConfigSource, Operation
from barnabas.errors import Code
from barnabas.setting import Kind
from barnabas.testing import Broker
from barnabas.wire.batch import Record, encode_batch
from barnabas.wire.messages.cluster import DescribeClusterRequest
from barnabas.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.log_dirs import DescribeLogDirsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.speaking import batch, connect, create, fetch, produce
from tests.deadline import eventually
from tests.raw import RawConnection

TOPIC, BROKER = 2, 4


def described(connection: RawConnection, name: str, kind: int = TOPIC) -> dict[str, Any]:
    asked = DescribeConfigsRequest([DescribeConfigsResource(kind, name)], True, True)
    (result,) = connection.ask(asked, 4).results
    assert result.error_code == 0, result.error_message
    return {row.name: row for row in result.configs}


def alter(
    connection: RawConnection, kind: int, name: str, *changes: tuple[str, Operation, str | None]
) -> Any:
    rows = [IncrementalAlterableConfig(*change) for change in changes]
    asked = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(kind, name, rows)])
    return connection.ask(asked, 1).responses[0]


def metadata(connection: RawConnection, name: str, *, create: bool = False) -> Any:
    asked = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)
    return connection.ask(asked, 12).topics[0]


def test_validate_only_makes_nothing(connection: RawConnection, topic: str) -> None:
    asked = CreateTopicsRequest([CreatableTopic(topic, 2, 1)], validate_only=True)
    result = connection.ask(asked, 7).topics[0]
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert metadata(connection, topic).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_named_twice_in_a_request_is_refused(connection: RawConnection, topic: str) -> None:
    asked = CreateTopicsRequest([CreatableTopic(topic, 1, 1), CreatableTopic(topic, 2, 1)])
    (result,) = connection.ask(asked, 7).topics
    assert result.error_code == Code.INVALID_REQUEST


def test_a_topic_named_twice_is_not_deleted(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    topic_id = metadata(connection, topic).topic_id
    by_name, by_id = DeleteTopicState(topic), DeleteTopicState(None, topic_id)
    for twice in ([by_name, by_name], [by_id, by_id], [by_name, by_id], [by_id, by_name]):
        (row,) = connection.ask(DeleteTopicsRequest(twice), 6).responses
        assert (row.name, row.topic_id, row.error_code) == (topic, topic_id, Code.INVALID_REQUEST)
    (row,) = connection.ask(DeleteTopicsRequest(topic_names=[topic, topic]), 5).responses
    assert (row.name, row.error_code) == (topic, Code.INVALID_REQUEST)
    unknown = DeleteTopicState(None, uuid.uuid4())
    (row,) = connection.ask(DeleteTopicsRequest([unknown, unknown]), 6).responses
    assert (row.name, row.topic_id, row.error_code) == (None, unknown.topic_id, Code.INVALID_REQUEST)
    assert metadata(connection, topic).topic_id == topic_id


def test_what_a_request_names_once_is_done_beside_what_it_names_twice(
    connection: RawConnection, topic: str
) -> None:
    other = f"{topic}-other"
    create(connection, topic)
    create(connection, other)
    rows = [
        CreatePartitionsTopic(topic, 2),
        CreatePartitionsTopic(other, 2),
        CreatePartitionsTopic(topic, 3),
    ]
    results = connection.ask(CreatePartitionsRequest(rows), 3).results
    assert {row.name: row.error_code for row in results} == {topic: Code.INVALID_REQUEST, other: 0}
    assert len(results) == 2
    assert len(metadata(connection, topic).partitions) == 1
    assert len(metadata(connection, other).partitions) == 2


def test_a_resource_named_twice_keeps_its_settings(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    some = [
        IncrementalAlterConfigsResource(
            TOPIC, topic, [IncrementalAlterableConfig(name, Operation.SET, "7777")]
        )
        for name in ("retention.ms", "flush.ms")
    ]
    rows = connection.ask(IncrementalAlterConfigsRequest(some), 1).responses
    assert [row.error_code for row in rows] == [Code.INVALID_REQUEST] * 2
    all_anew = [
        AlterConfigsResource(TOPIC, topic, [AlterableConfig(name, "7777")])
        for name in ("retention.ms", "flush.ms")
    ]
    rows = connection.ask(AlterConfigsRequest(all_anew), 2).responses
    assert [row.error_code for row in rows] == [Code.INVALID_REQUEST] * 2
    assert "7777" not in {row.value for row in described(connection, topic).values()}


def test_a_setting_given_twice_in_a_request_stays_as_it_is(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    row = alter(
        connection,
        TOPIC,
        topic,
        ("retention.ms", Operation.SET, "7777"),
        ("retention.ms", Operation.DELETE, None),
    )
    assert row.error_code == Code.INVALID_REQUEST
    assert "retention.ms" in row.error_message
    values = [AlterableConfig("retention.ms", "7777"), AlterableConfig("retention.ms", "8888")]
    asked = AlterConfigsRequest([AlterConfigsResource(TOPIC, topic, values)])
    assert connection.ask(asked, 2).responses[0].error_code == Code.INVALID_REQUEST
    assert described(connection, topic)["retention.ms"].value == "604800000"


def test_an_unknown_topic_is_created_when_asked_for_and_allowed(
    connection: RawConnection, topic: str
) -> None:
    assert metadata(connection, topic, create=True).partitions[0].leader_id == 1
    assert metadata(connection, "no spaces", create=True).error_code == Code.INVALID_TOPIC_EXCEPTION
    with Broker({"auto.create.topics.enable": "false"}) as strict, connect(strict) as other:
        assert metadata(other, topic, create=True).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_found_and_deleted_by_its_id(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    topic_id = metadata(connection, topic).topic_id
    by_id = MetadataRequest([MetadataRequestTopic(topic_id, None), MetadataRequestTopic(uuid.uuid4(), None)])
    found, missing = connection.ask(by_id, 12).topics
    assert found.name == topic
    assert missing.error_code == Code.UNKNOWN_TOPIC_ID
    (gone,) = connection.ask(DeleteTopicsRequest([DeleteTopicState(None, topic_id)]), 6).responses
    assert (gone.error_code, gone.name) == (0, topic)
    assert metadata(connection, topic).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [10, 11, 12])
def test_an_unknown_topic_id_is_answered_in_every_version_that_has_ids(
    connection: RawConnection, version: int
) -> None:
    asked = MetadataRequest([MetadataRequestTopic(uuid.uuid4(), None)])
    assert connection.ask(asked, version).topics[0].error_code == Code.UNKNOWN_TOPIC_ID


def test_a_topic_made_anew_is_another_topic_and_empty(connection: RawConnection, topic: str) -> None:
    ids = set()
    for _ in range(3):
        create(connection, topic)
        produce(connection, topic, batch(b"x"))
        (row,) = fetch(connection, topic, {0: 0})
        assert row.high_watermark == 1
        ids.add(metadata(connection, topic).topic_id)
        connection.ask(DeleteTopicsRequest([DeleteTopicState(topic)]), 6)
    assert len(ids) == 3


def test_deletion_can_be_switched_off() -> None:
    with Broker({"delete.topic.enable": "false"}) as broker, connect(broker) as connection:
        create(connection, "t")
        (row,) = connection.ask(DeleteTopicsRequest([DeleteTopicState("t")]), 6).responses
        assert row.error_code == Code.TOPIC_DELETION_DISABLED


def test_partitions_can_become_more_and_not_fewer(connection: RawConnection, topic: str) -> None:
    create(connection, topic, 2)

    def add(count: int, *, dry: bool = False) -> int:
        asked = CreatePartitionsRequest([CreatePartitionsTopic(topic, count)], validate_only=dry)
        code: int = connection.ask(asked, 3).results[0].error_code
        return code

    assert add(5, dry=True) == 0
    assert len(metadata(connection, topic).partitions) == 2
    assert add(5) == 0
    assert len(metadata(connection, topic).partitions) == 5
    assert add(5) == add(1) == Code.INVALID_PARTITIONS
    assert produce(connection, topic, batch(b"x"), 4).error_code == 0


def test_settings_tell_where_they_come_from(connection: RawConnection, topic: str) -> None:
    create(connection, topic, retention_ms="5000")
    rows = described(connection, topic)
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("5000", ConfigSource.TOPIC)
    assert rows["retention.ms"].config_type == Kind.LONG
    assert [s.source for s in rows["retention.ms"].synonyms] == [ConfigSource.TOPIC, ConfigSource.DEFAULT]
    assert (rows["segment.bytes"].value, rows["segment.bytes"].config_source) == (
        "1073741824",
        ConfigSource.DEFAULT,
    )
    assert all(row.documentation for row in rows.values())
    mine = described(connection, "1", BROKER)
    assert mine["log.dirs"].config_source == ConfigSource.STATIC_BROKER
    assert mine["log.dirs"].read_only
    assert mine["num.partitions"].value == "1"
    assert (mine["log.retention.hours"].value, mine["log.retention.ms"].value) == ("168", None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "burn"),
        ("cleanup.policy", ","),
        ("cleanup.policy", "delete,"),
        ("segment.bytes", "-4"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_a_sentence(
    connection: RawConnection, topic: str, name: str, value: str
) -> None:
    create(connection, topic)
    row = alter(connection, TOPIC, topic, (name, Operation.SET, value))
    assert row.error_code == Code.INVALID_CONFIG
    assert name in row.error_message
    assert row.error_message.endswith(".")


def test_a_topic_with_a_setting_without_a_value_is_not_made(connection: RawConnection, topic: str) -> None:
    empty = [CreatableTopicConfig("retention.ms", None)]
    (result,) = connection.ask(CreateTopicsRequest([CreatableTopic(topic, 1, 1, configs=empty)]), 7).topics
    assert result.error_code == Code.INVALID_CONFIG
    assert "retention.ms" in result.error_message
    assert metadata(connection, topic).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_hours_are_told_as_milliseconds_however_they_were_written() -> None:
    with Broker({"log.retention.hours": " +3 "}) as broker, connect(broker) as connection:
        create(connection, "t")
        assert described(connection, "t")["retention.ms"].value == str(3 * 3_600_000)


@pytest.mark.parametrize(
    ("name", "default", "given", "wrong"),
    [
        ("compression.gzip.level", "-1", "9", "0"),
        ("compression.lz4.level", "9", "17", "18"),
        ("compression.zstd.level", "3", "-131072", "23"),
        ("follower.replication.throttled.replicas", "", "0:1,1:2", "0:1,*"),
        ("leader.replication.throttled.replicas", "", "*", "0-1"),
        ("local.retention.bytes", "-2", "1000", "-3"),
        ("local.retention.ms", "-2", "1000", "soon"),
        ("remote.log.copy.disable", "false", "true", "maybe"),
        ("remote.log.delete.on.disable", "false", "true", "maybe"),
        ("remote.storage.enable", "false", "False", "true"),
    ],
)
def test_kafkas_settings_that_change_little_here_are_taken_if_they_make_sense(
    connection: RawConnection, topic: str, name: str, default: str, given: str, wrong: str
) -> None:
    create(connection, topic)
    row = described(connection, topic)[name]
    assert (row.value, row.config_source) == (default, ConfigSource.DEFAULT)
    assert [origin.source for origin in row.synonyms] == [ConfigSource.DEFAULT]
    refused = alter(connection, TOPIC, topic, (name, Operation.SET, wrong))
    assert refused.error_code == Code.INVALID_CONFIG
    assert name in refused.error_message
    assert not alter(connection, TOPIC, topic, (name, Operation.SET, given)).error_code
    row = described(connection, topic)[name]
    assert (row.value, row.config_source) == (given, ConfigSource.TOPIC)


def test_settings_are_set_taken_back_and_lists_grown(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    assert not alter(connection, TOPIC, topic, ("retention.ms", Operation.SET, "77")).error_code
    assert not alter(connection, TOPIC, topic, ("cleanup.policy", Operation.APPEND, "compact")).error_code
    rows = described(connection, topic)
    assert (rows["retention.ms"].value, rows["cleanup.policy"].value) == ("77", "delete,compact")
    alter(connection, TOPIC, topic, ("retention.ms", Operation.DELETE, None))
    alter(connection, TOPIC, topic, ("cleanup.policy", Operation.SUBTRACT, "delete"))
    rows = described(connection, topic)
    assert (rows["retention.ms"].value, rows["cleanup.policy"].value) == ("604800000", "compact")
    asked = AlterConfigsResource(TOPIC, topic, [AlterableConfig("flush.ms", "9")])
    assert connection.ask(AlterConfigsRequest([asked]), 2).responses[0].error_code == 0
    rows = described(connection, topic)
    assert (rows["flush.ms"].value, rows["cleanup.policy"].value) == ("9", "delete")


def test_a_cleanup_policy_may_be_empty_and_then_everything_is_kept(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "20", "log.cleaner.backoff.ms": "20"}
    with Broker(settings, data=tmp_path) as broker, connect(broker) as connection:
        for name in ("kept", "deleted"):
            create(connection, name, cleanup_policy="delete", retention_ms="1", segment_bytes="200")
        # The records are of 1970: with a policy they would all be gone at the next look.
        assert not alter(
            connection, TOPIC, "kept", ("cleanup.policy", Operation.SUBTRACT, "delete")
        ).error_code
        assert described(connection, "kept")["cleanup.policy"].value == ""
        for _ in range(5):
            for name in ("kept", "deleted"):
                produce(connection, name, encode_batch([Record(0, 1, b"key", b"v" * 100)]))
        eventually(lambda: fetch(connection, "deleted", {0: 5})[0].log_start_offset > 0, "retention to run")
        assert fetch(connection, "kept", {0: 0})[0].log_start_offset == 0
        assert not alter(connection, TOPIC, "kept", ("cleanup.policy", Operation.SET, "")).error_code
        assert not alter(
            connection, TOPIC, "kept", ("cleanup.policy", Operation.APPEND, "compact")
        ).error_code
        assert described(connection, "kept")["cleanup.policy"].value == "compact"


def test_a_brokers_settings_reach_its_topics_and_last(tmp_path: str) -> None:
    with Broker({"log.retention.hours": "3"}, data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t")
        row = described(connection, "t")["retention.ms"]
        assert (row.value, row.config_source) == (str(3 * 3_600_000), ConfigSource.STATIC_BROKER)
        assert not alter(connection, BROKER, "", ("log.retention.ms", Operation.SET, "4000")).error_code
        assert not alter(connection, BROKER, "1", ("message.max.bytes", Operation.SET, "100")).error_code
        assert (
            alter(connection, BROKER, "1", ("log.dirs", Operation.SET, "x")).error_code
            == Code.INVALID_REQUEST
        )
        assert {n: row.value for n, row in described(connection, "", BROKER).items()} == {
            "log.retention.ms": "4000"
        }
        assert alter(connection, BROKER, "7", ("message.max.bytes", Operation.SET, "1")).error_code
        assert produce(connection, "t", batch(b"x" * 100)).error_code == Code.MESSAGE_TOO_LARGE
    with Broker({"log.retention.hours": "3"}, data=tmp_path) as broker, connect(broker) as connection:
        row = described(connection, "t")["retention.ms"]
        assert (row.value, row.config_source) == ("4000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        assert produce(connection, "t", batch(b"x" * 100)).error_code == Code.MESSAGE_TOO_LARGE


def offsets(connection: RawConnection, topic: str, timestamp: int) -> tuple[int, int, int]:
    asked = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp)])])
    row = connection.ask(asked, 7).topics[0].partitions[0]
    return row.error_code, row.timestamp, row.offset


def test_the_ends_of_a_log_and_deleted_records(connection: RawConnection, topic: str) -> None:
    create(connection, topic)
    assert offsets(connection, topic, -3) == (0, -1, -1)
    produce(connection, topic, batch(b"a", b"b", b"c", b"d"))
    assert offsets(connection, topic, -2) == (0, -1, 0)
    assert offsets(connection, topic, -1) == (0, -1, 4)
    assert offsets(connection, topic, 1)[2] == 0
    assert offsets(connection, topic, 1 << 60) == (0, -1, -1)

    def delete(before: int) -> tuple[int, int]:
        asked = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, before)])])
        row = connection.ask(asked, 2).topics[0].partitions[0]
        return row.error_code, row.low_watermark

    assert delete(2) == (0, 2)
    assert delete(1) == (0, 2)
    assert delete(5) == (Code.OFFSET_OUT_OF_RANGE, -1)
    assert offsets(connection, topic, -2) == (0, -1, 2)
    assert fetch(connection, topic, {0: 1})[0].error_code == Code.OFFSET_OUT_OF_RANGE
    assert fetch(connection, topic, {0: 2})[0].records
    assert delete(-1) == (0, 4)


def test_the_cluster_and_its_directories_are_described(
    broker: Broker, connection: RawConnection, topic: str
) -> None:
    create(connection, topic)
    produce(connection, topic, batch(b"x" * 500))
    cluster = connection.ask(DescribeClusterRequest(), 1)
    assert (cluster.controller_id, len(cluster.brokers), len(cluster.cluster_id)) == (1, 1, 22)
    (directory,) = connection.ask(DescribeLogDirsRequest(), 4).results
    assert directory.log_dir == str(broker.data)
    assert directory.total_bytes >= directory.usable_bytes > 0
    sizes = {row.name: row.partitions[0].partition_size for row in directory.topics}
    assert sizes[topic] > 500
