"""The embedded store: what it committed is there after any crash, in one piece."""

import uuid
from pathlib import Path

import pytest

from barnabas.cluster.controller import (
    WantedTopic,
    add_partitions,
    configure_topic,
    create_topic,
    delete_topic,
)
from barnabas.cluster.image import (
    BrokerImage,
    BrokersConfigured,
    ClusterImage,
    LeaderRestarted,
    ProducerIdsTaken,
)
from barnabas.cluster.local import FILE_NAME, LocalStore
from barnabas.config import BrokerConfig
from barnabas.disk import RealDisk
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import BrokerId, ProducerId

CONFIG = BrokerConfig()
EMPTY = ClusterImage("c", BrokerId(1), {BrokerId(1): BrokerImage(BrokerId(1), "localhost", 9092)})


def wanted(name: str, **facts: object) -> WantedTopic:
    return WantedTopic(name, uuid.uuid4(), **facts)  # type: ignore[arg-type]


def busy_store(path: Path) -> LocalStore:
    store = LocalStore(RealDisk(), str(path), EMPTY)
    store.commit(create_topic(store.image, wanted("a", partitions=3, configs={"retention.ms": "5"}), CONFIG))
    store.commit(create_topic(store.image, wanted("b"), CONFIG))
    store.commit(add_partitions(store.image, "b", 4, None))
    store.commit(configure_topic(store.image, "b", {"cleanup.policy": "compact"}, CONFIG))
    store.commit(create_topic(store.image, wanted("gone"), CONFIG))
    store.commit(delete_topic(store.image, "gone", CONFIG))
    store.commit([ProducerIdsTaken(ProducerId(1000)), LeaderRestarted(BrokerId(1))])
    store.commit([BrokersConfigured("1", {"max.connections": "7"})])
    return store


def test_all_that_was_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    store = busy_store(tmp_path)
    again = LocalStore(RealDisk(), str(tmp_path), EMPTY)
    assert again.image == store.image
    assert again.image.topics["b"].partitions[3].epoch == 1
    assert LocalStore(RealDisk(), str(tmp_path), EMPTY).image == store.image


def test_a_torn_last_line_is_dropped_at_every_length(tmp_path: Path) -> None:
    busy_store(tmp_path).close()
    whole = (tmp_path / FILE_NAME).read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(lines[-1])):
        (tmp_path / FILE_NAME).write_bytes(whole[: len(whole) - len(lines[-1]) + cut])
        image = LocalStore(RealDisk(), str(tmp_path), EMPTY).image
        # Only the newline missing leaves a whole line; anything shorter is as if it had never been written.
        expected = {"1": {"max.connections": "7"}} if cut == len(lines[-1]) - 1 else {}
        assert image.broker_configs == expected
        assert set(image.topics) == {"a", "b"}


def test_damage_in_the_middle_is_not_passed_over(tmp_path: Path) -> None:
    busy_store(tmp_path).close()
    path = tmp_path / FILE_NAME
    text = bytearray(path.read_bytes())
    text[len(text) // 3] ^= 1
    path.write_bytes(text)
    with pytest.raises(BarnabasError, match="damaged in line"):
        LocalStore(RealDisk(), str(tmp_path), EMPTY)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\n", "../up"])
def test_names_that_kafka_refuses_are_refused(name: str) -> None:
    with pytest.raises(Refused) as refused:
        create_topic(EMPTY, wanted(name), CONFIG)
    assert refused.value.code is Code.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"partitions": 0}, Code.INVALID_PARTITIONS),
        ({"partitions": -2}, Code.INVALID_PARTITIONS),
        ({"replication_factor": 2}, Code.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 0}, Code.INVALID_REPLICATION_FACTOR),
        ({"assignment": {0: [1], 2: [1]}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: [9]}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: [1, 1]}}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: [1]}, "partitions": 2}, Code.INVALID_REQUEST),
        ({"configs": {"no.such": "1"}}, Code.INVALID_CONFIG),
        ({"configs": {"retention.ms": "soon"}}, Code.INVALID_CONFIG),
        ({"configs": {"cleanup.policy": "burn"}}, Code.INVALID_CONFIG),
    ],
)
def test_wishes_that_cannot_be_are_refused_with_kafkas_code(facts: dict[str, object], code: Code) -> None:
    with pytest.raises(Refused) as refused:
        create_topic(EMPTY, wanted("t", **facts), CONFIG)
    assert refused.value.code is code
    assert refused.value.message.endswith(".")


def test_names_that_differ_only_by_dot_and_underscore_collide() -> None:
    image = EMPTY.after(create_topic(EMPTY, wanted("a.b"), CONFIG))
    with pytest.raises(Refused) as refused:
        create_topic(image, wanted("a_b"), CONFIG)
    assert refused.value.code is Code.INVALID_TOPIC_EXCEPTION
