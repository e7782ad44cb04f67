"""Kafka's znodes: what is written is what Kafka 3.x writes, what is damaged is a sentence."""

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from barnabas.cluster.image import (
    BrokerEpoch,
    BrokerImage,
    ControllerEpoch,
    PartitionEpoch,
    PartitionImage,
    Recovery,
)
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.znodes import DamagedNode
from barnabas.types import BrokerId, LeaderEpoch, Millis, ProducerId, TopicPartition

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
TP = TopicPartition("t", 0)
ID = uuid.UUID(int=7)


def body(data: bytes) -> Any:
    return json.loads(data)


def test_a_broker_is_written_as_kafka_does_and_read_back() -> None:
    broker = BrokerImage(ONE, "h", 9092, "r", BrokerEpoch(5), survived=False)
    data = znodes.encode_broker(broker, "machine:/data", Millis(17))
    assert body(data) == {
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": ["PLAINTEXT://h:9092"],
        "rack": "r",
        "jmx_port": -1,
        "features": {},
        "host": "h",
        "timestamp": "17",
        "port": 9092,
        "version": 5,
        "survived": False,
        "directory": "machine:/data",
    }
    assert znodes.parse_broker(ONE, data, BrokerEpoch(5)) == broker
    assert znodes.directory_of(ONE, data) == "machine:/data"


def test_a_broker_of_kafka_that_has_only_endpoints_is_understood() -> None:
    data = b'{"endpoints":["SSL://[::1]:9093"],"host":null,"port":-1,"version":5,"new":{}}'
    assert znodes.parse_broker(ONE, data, BrokerEpoch(1)) == BrokerImage(
        ONE, "[::1]", 9093, None, BrokerEpoch(1)
    )
    assert znodes.directory_of(ONE, data) == ""


def test_a_topic_is_written_as_kafka_does_and_read_back() -> None:
    partitions = [
        PartitionImage((ONE, TWO, THREE), (ONE,), ONE, adding=(THREE,), removing=(TWO,)),
        PartitionImage((TWO,), (TWO,), TWO),
    ]
    data = znodes.encode_topic(ID, partitions)
    assert body(data) == {
        "partitions": {"0": [1, 2, 3], "1": [2]},
        "topic_id": "AAAAAAAAAAAAAAAAAAAABw",
        "adding_replicas": {"0": [3]},
        "removing_replicas": {"0": [2]},
        "version": 3,
    }
    read = znodes.parse_topic("t", data)
    assert read == znodes.Assignment(ID, {0: (ONE, TWO, THREE), 1: (TWO,)}, {0: (THREE,)}, {0: (TWO,)})
    old = znodes.parse_topic("t", b'{"version":1,"partitions":{"0":[1]}}')
    assert old == znodes.Assignment(None, {0: (ONE,)}, {}, {})


def test_a_state_is_written_as_kafka_does_and_read_back() -> None:
    partition = PartitionImage(
        (ONE, TWO), (TWO,), TWO, LeaderEpoch(4), PartitionEpoch(9), recovery=Recovery.RECOVERING, elr=(ONE,)
    )
    data = znodes.encode_state(partition, ControllerEpoch(3))
    assert body(data) == {
        "controller_epoch": 3,
        "leader": 2,
        "version": 1,
        "leader_epoch": 4,
        "isr": [2],
        "leader_recovery_state": 1,
        "elr": [1],
    }
    assignment = znodes.parse_topic("t", znodes.encode_topic(ID, [partition]))
    assert znodes.parse_state(TP, data, 9, assignment) == partition
    of_kafka = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
    assert znodes.parse_state(TP, of_kafka, 0, assignment) == PartitionImage((ONE, TWO), (ONE, TWO), ONE)


def test_the_small_nodes_are_written_as_kafka_does_and_read_back() -> None:
    assert body(znodes.encode_controller(ONE, Millis(5)))["brokerid"] == 1
    assert znodes.parse_controller(b'{"version":1,"brokerid":3,"timestamp":"5"}') == THREE
    assert znodes.encode_controller_epoch(ControllerEpoch(12)) == b"12"
    assert znodes.parse_controller_epoch(b"12") == 12
    assert body(znodes.encode_configs({"a": "b"})) == {"version": 1, "config": {"a": "b"}}
    assert znodes.parse_configs("topics/t", b"") == {}
    assert body(znodes.encode_config_change("topics/t")) == {"version": 2, "entity_path": "topics/t"}
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert znodes.parse_config_change("x", old) == "topics/t"
    block = znodes.encode_producer_ids(ONE, ProducerId(1000), ProducerId(2000))
    assert body(block) == {"version": 1, "broker": 1, "block_start": "1000", "block_end": "1999"}
    assert znodes.parse_producer_ids(block) == 2000
    assert znodes.parse_producer_ids(b"") == 0
    assert znodes.parse_cluster_id(znodes.encode_cluster_id("abc")) == "abc"
    assert znodes.parse_partitions("x", znodes.encode_isr_notice([TP])) == (TP,)
    assert body(znodes.encode_directory_notice(TWO)) == {"version": 1, "broker": 2, "event": 1}
    assert znodes.parse_directory_notice("x", znodes.encode_directory_notice(TWO)) == TWO
    assert znodes.parse_reassignments(znodes.encode_reassignments({TP: [ONE]})) == {TP: (ONE,)}
    assert [znodes.sequence_of(name) for name in ("config_change_0000000012", "x", "x_", "x_²")] == [
        12,
        -1,
        -1,
        -1,
    ]


ASSIGNMENT = znodes.Assignment(ID, {0: (ONE,)}, {}, {})
PARSERS: list[Callable[[bytes], object]] = [
    lambda data: znodes.parse_broker(ONE, data, BrokerEpoch(0)),
    lambda data: znodes.directory_of(ONE, data),
    znodes.parse_controller,
    znodes.parse_controller_epoch,
    lambda data: znodes.parse_topic("t", data),
    lambda data: znodes.parse_state(TP, data, 0, ASSIGNMENT),
    lambda data: znodes.parse_configs("topics/t", data),
    lambda data: znodes.parse_config_change("c", data),
    znodes.parse_producer_ids,
    znodes.parse_cluster_id,
    lambda data: znodes.parse_partitions("p", data),
    lambda data: znodes.parse_directory_notice("p", data),
    znodes.parse_reassignments,
]
WORDS = some.sampled_from(
    [
        *(
            "partitions",
            "isr",
            "leader",
            "leader_epoch",
            "topic",
            "partition",
            "replicas",
            "host",
            "port",
            "0",
        ),
        *(
            "endpoints",
            "brokerid",
            "config",
            "entity_path",
            "block_end",
            "id",
            "broker",
            "topic_id",
            "version",
        ),
    ]
)
VALUES: some.SearchStrategy[Any] = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(WORDS, inner, max_size=6),
    max_leaves=15,
)


@given(VALUES.map(lambda value: json.dumps(value).encode()) | some.binary(max_size=40))
def test_a_damaged_node_is_a_sentence_and_never_another_error(data: bytes) -> None:
    for parse in PARSERS:
        with suppress(DamagedNode):
            parse(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Expecting value"),
        (b"[]", "not an object"),
        (b"{}", "it has no 'brokerid'"),
        (b"[" * 99999, ""),
        (b'{"brokerid":Infinity}', "infinity"),
    ],
)
def test_the_sentence_names_the_node_and_what_is_wrong(data: bytes, why: str) -> None:
    with pytest.raises(DamagedNode, match=f"The node /controller in ZooKeeper is damaged.*{why}"):
        znodes.parse_controller(data)
