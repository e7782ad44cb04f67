"""Promises of a cluster's brokers to each other: one decides, all know, any of them can be asked."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin
from barnabas.client.admin.configs import Resource
from barnabas.client.admin.topics import NewTopic
from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.messages.controlling import UpdateMetadataRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.producers import AllocateProducerIdsRequest, InitProducerIdRequest
from barnabas.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.memory_cluster import Member, Members
from tests.broker.speaking import connect
from tests.deadline import eventually


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def asked(broker: Broker, request: Any, version: int) -> Any:
    with connect(broker) as connection:
        return connection.ask(request, version)


def test_a_topic_that_any_broker_is_asked_for_is_known_to_all(folder: Path) -> None:
    with Members(folder) as members:
        for number in (1, 2, 3):
            with Admin(bootstrap_servers=members[number].bootstrap) as admin:
                admin.create_topics([NewTopic(f"t{number}", partitions=6, replication_factor=3)])
        for member in members.all:
            image = member.running.metadata.image
            assert {"t1", "t2", "t3"} <= set(image.topics)
            assert {p.leader for p in image.topics["t1"].partitions} == {1, 2, 3}


def test_another_broker_becomes_controller_when_the_first_one_stops(folder: Path) -> None:
    with Members(folder) as members:
        first = members[1].running.metadata.image.controller
        members[first].stop()
        members.until_known(2)
        left = [member for member in members.all if member.id != first]
        eventually(
            lambda: {m.running.metadata.image.controller for m in left} in ({left[0].id}, {left[1].id}),
            "another controller",
        )
        with Admin(bootstrap_servers=left[0].bootstrap) as admin:
            admin.create_topics([NewTopic("t", partitions=2, replication_factor=2)])


def test_what_is_on_its_way_to_the_controller_is_answered_by_a_broker_that_becomes_it(folder: Path) -> None:
    with Members(folder) as members:
        chair = members[members[1].running.metadata.image.controller]
        # As a broker asks that took another one for the controller a moment ago.
        request = AllocateProducerIdsRequest(chair.id, chair.running.epoch)
        answer = chair.run(chair.running.to_controller.ask(request, 10_000))
        assert answer.error_code == 0
        assert answer.producer_id_len > 0


def test_settings_that_any_broker_is_asked_for_hold_on_all(folder: Path) -> None:
    with Members(folder) as members:
        with Admin(bootstrap_servers=members[2].bootstrap) as admin:
            admin.create_topics([NewTopic("t", partitions=3, replication_factor=3)])
            admin.alter_configs(Resource.topic("t"), {"retention.ms": "12345"})
        for member in members.all:
            eventually(partial(retention_is, member, 12345), f"broker {member.id} to go by the new setting")


def retention_is(member: Member, milliseconds: int) -> bool:
    partition = member.running.replicas.find("t", 0)
    return partition is not None and partition.log.config.retention_ms == milliseconds


def test_producer_ids_of_all_brokers_differ(folder: Path) -> None:
    with Members(folder) as members:
        ids = [
            asked(member, InitProducerIdRequest(None, 60_000), 4).producer_id for member in members.all * 2
        ]
        assert len(set(ids)) == len(ids)


def test_a_topic_is_made_by_asking_any_broker_for_it(folder: Path) -> None:
    with Members(folder) as members:
        other = next(m for m in members.all if not m.running.metadata.is_controller)
        answer = asked(other, MetadataRequest([MetadataRequestTopic(name="asked-for")], True), 12)
        assert answer.topics[0].error_code == 0


@pytest.mark.parametrize("version", [1, 5, 6])
def test_a_topic_is_deleted_by_asking_any_broker_in_any_version(folder: Path, version: int) -> None:
    with Members(folder) as members:
        with Admin(bootstrap_servers=members.bootstrap) as admin:
            admin.create_topics([NewTopic("t", partitions=1, replication_factor=3)])
        other = next(m for m in members.all if not m.running.metadata.is_controller)
        wish = DeleteTopicsRequest(
            topics=[DeleteTopicState("t")] if version >= 6 else [],
            topic_names=["t"] if version < 6 else [],
            timeout_ms=30_000,
        )
        answer = asked(other, wish, version)
        assert [(row.name, row.error_code) for row in answer.responses] == [("t", 0)]
        assert "t" not in members.cluster.image.topics


def test_an_announcement_of_an_old_controller_changes_nothing(folder: Path) -> None:
    with Members(folder) as members:
        other = next(m for m in members.all if not m.running.metadata.is_controller)
        before = other.running.metadata.image
        stale = UpdateMetadataRequest(3, controller_epoch=0, broker_epoch=other.running.epoch, type=2)
        assert asked(other, stale, 8).error_code == Code.STALE_CONTROLLER_EPOCH
        assert other.running.metadata.image is before


def test_a_broker_that_is_alone_takes_no_announcement() -> None:
    with Broker() as broker:
        answer = asked(broker, UpdateMetadataRequest(1, controller_epoch=9), 8)
        assert answer.error_code == Code.INVALID_REQUEST


def test_leaders_move_before_a_broker_stops(folder: Path) -> None:
    with Members(folder) as members:
        with Admin(bootstrap_servers=members.bootstrap) as admin:
            admin.create_topics([NewTopic("t", partitions=6, replication_factor=3)])
        stopping = next(m for m in members.all if not m.running.metadata.is_controller)
        stopping.stop()
        for partition in members.cluster.image.topics["t"].partitions:
            assert partition.leader != stopping.id
            assert stopping.id not in partition.isr
