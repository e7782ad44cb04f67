"""Where Kafka 3.x keeps a cluster in ZooKeeper, and the JSON of each node. PURE.

Called by `changes` (what a change writes) and `reading` (what there is). Tools that look into ZooKeeper find what
they expect. Keys that are unknown are passed over; a node that cannot be understood is `DamagedNode`, one sentence, and
never another error. Two keys are ours: `survived` and `directory` of a broker, and `elr` of a partition (KIP-966).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from barnabas.cluster.image import (
    NO_BROKER,
    BrokerEpoch,
    BrokerImage,
    ControllerEpoch,
    PartitionEpoch,
    PartitionImage,
    Recovery,
)
from barnabas.errors import BarnabasError
from barnabas.types import BrokerId, LeaderEpoch, Millis, ProducerId, TopicPartition, parse_id, short_id

T = TypeVar("T")

_JSON = json.JSONEncoder(separators=(",", ":"))

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_NOTICES = "/isr_change_notification"
ISR_NOTICE = f"{ISR_NOTICES}/isr_change_"
DIRECTORY_NOTICES = "/log_dir_event_notification"
DIRECTORY_NOTICE = f"{DIRECTORY_NOTICES}/log_dir_event_"
CONFIG = "/config"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE = f"{CONFIG_CHANGES}/config_change_"
CLUSTER_ID = "/cluster/id"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

ALL_BROKERS = "<default>"
"""The name of the settings that all brokers have."""

PERSISTENT = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/admin",
    DELETE_TOPICS,
    ISR_NOTICES,
    DIRECTORY_NOTICES,
    CONFIG,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    "/config/users",
    "/config/clients",
    "/config/ips",
    CONFIG_CHANGES,
    "/cluster",
    PRODUCER_ID_BLOCK,
)
"""What is there before the first broker is, parents first."""


class DamagedNode(BarnabasError):
    """A node that does not say what it should."""


class Assignment(NamedTuple):
    """A topic's node: its id, and which brokers have which partition."""

    id: UUID | None
    """None for a topic that a tool of before Kafka 2.8 has made."""
    replicas: Mapping[int, tuple[BrokerId, ...]]
    adding: Mapping[int, tuple[BrokerId, ...]]
    removing: Mapping[int, tuple[BrokerId, ...]]


# Paths


def broker_path(broker: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def delete_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def topic_entity(topic: str) -> str:
    """How a change of settings names a topic."""
    return f"topics/{topic}"


def broker_entity(broker: str) -> str:
    return f"brokers/{broker or ALL_BROKERS}"


def config_path(entity: str) -> str:
    return f"{CONFIG}/{entity}"


def sequence_of(name: str) -> int:
    """The number that ZooKeeper gave to a node like config_change_0000000012; -1 where there is none."""
    digits = name.rsplit("_", 1)[-1]
    return int(digits) if digits.isascii() and digits.isdigit() else -1


# Brokers and their controller


def encode_broker(broker: BrokerImage, directory: str, now: Millis) -> bytes:
    """A broker's node; `directory` tells its data directory from every other one."""
    return _encode(
        {
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "endpoints": [f"PLAINTEXT://{broker.host}:{broker.port}"],
            "rack": broker.rack,
            "jmx_port": -1,
            "features": {},
            "host": broker.host,
            "timestamp": str(now),
            "port": broker.port,
            "version": 5,
            "survived": broker.survived,
            "directory": directory,
        }
    )


def believed(data: bytes) -> bytes:
    """A broker's node after all that it may have lost is settled."""
    return _encode({**json.loads(data), "survived": True})


def parse_broker(broker: BrokerId, data: bytes, epoch: BrokerEpoch) -> BrokerImage:
    def read(body: dict[str, Any]) -> BrokerImage:
        host, port, rack = body.get("host"), int(body.get("port") or -1), body.get("rack")
        if not host or port < 0:
            # Where no listener is PLAINTEXT, host and port are only in the endpoints.
            host, port = _endpoint(body["endpoints"][0])
        survived = body.get("survived", True) is not False
        return BrokerImage(broker, str(host), port, None if rack is None else str(rack), epoch, survived)

    return _parse(broker_path(broker), data, read)


def directory_of(broker: BrokerId, data: bytes) -> str:
    """Which data directory a registered broker has; empty where its node does not say."""
    return _parse(broker_path(broker), data, lambda body: str(body.get("directory", "")))


def encode_controller(broker: BrokerId, now: Millis) -> bytes:
    return _encode({"version": 2, "brokerid": broker, "timestamp": str(now), "kraftControllerEpoch": -1})


def parse_controller(data: bytes) -> BrokerId:
    return _parse(CONTROLLER, data, lambda body: BrokerId(int(body["brokerid"])))


def encode_controller_epoch(epoch: ControllerEpoch) -> bytes:
    return str(epoch).encode()


def parse_controller_epoch(data: bytes) -> ControllerEpoch:
    try:
        return ControllerEpoch(int(data))
    except ValueError:
        raise _damaged(CONTROLLER_EPOCH, data, "it is not a number") from None


# Topics


def encode_topic(topic_id: UUID, partitions: Sequence[PartitionImage]) -> bytes:
    numbered = list(enumerate(partitions))
    return _encode(
        {
            "partitions": {str(index): one.replicas for index, one in numbered},
            "topic_id": short_id(topic_id),
            "adding_replicas": {str(index): one.adding for index, one in numbered if one.adding},
            "removing_replicas": {str(index): one.removing for index, one in numbered if one.removing},
            "version": 3,
        }
    )


def parse_topic(topic: str, data: bytes) -> Assignment:
    def read(body: dict[str, Any]) -> Assignment:
        named = body.get("topic_id")
        replicas = _lists(body["partitions"])
        if sorted(replicas) != list(range(len(replicas))):
            raise ValueError("the numbers of its partitions have gaps")
        return Assignment(
            parse_id(str(named)) if named else None,
            replicas,
            _lists(body.get("adding_replicas") or {}),
            _lists(body.get("removing_replicas") or {}),
        )

    return _parse(topic_path(topic), data, read)


def encode_state(partition: PartitionImage, controller_epoch: ControllerEpoch) -> bytes:
    body = {
        "controller_epoch": controller_epoch,
        "leader": partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "leader_recovery_state": int(partition.recovery),
    }
    return _encode(body | {"elr": partition.elr} if partition.elr else body)


def parse_state(tp: TopicPartition, data: bytes, version: int, assignment: Assignment) -> PartitionImage:
    """A partition from its own node, whose version is its epoch, and from that of its topic."""

    def read(body: dict[str, Any]) -> PartitionImage:
        return PartitionImage(
            assignment.replicas[tp.partition],
            _ids(body["isr"]),
            BrokerId(int(body["leader"])),
            LeaderEpoch(int(body["leader_epoch"])),
            PartitionEpoch(version),
            assignment.adding.get(tp.partition, ()),
            assignment.removing.get(tp.partition, ()),
            Recovery(int(body.get("leader_recovery_state", Recovery.RECOVERED))),
            _ids(body.get("elr", ())),
        )

    return _parse(state_path(*tp), data, read)


def new_partition(partition: int, assignment: Assignment) -> PartitionImage:
    """A partition without a state yet: it was never led, so each of its replicas has all there is of it."""
    replicas = assignment.replicas[partition]
    return PartitionImage(
        replicas,
        replicas,
        NO_BROKER,
        LeaderEpoch(-1),
        PartitionEpoch(-1),
        assignment.adding.get(partition, ()),
        assignment.removing.get(partition, ()),
    )


def unreadable_partition(partition: int, version: int, assignment: Assignment) -> PartitionImage:
    """A partition whose state is damaged: none of its replicas may be trusted to be in sync."""
    replicas = assignment.replicas[partition]
    return PartitionImage(replicas, (), NO_BROKER, LeaderEpoch(0), PartitionEpoch(version))


# Settings, producer ids, the cluster's id


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(configs)})


def parse_configs(entity: str, data: bytes) -> dict[str, str]:
    def read(body: dict[str, Any]) -> dict[str, str]:
        return {str(name): str(value) for name, value in body.get("config", {}).items()}

    return _parse(config_path(entity), data, read) if data else {}


def encode_config_change(entity: str) -> bytes:
    return _encode({"version": 2, "entity_path": entity})


def parse_config_change(name: str, data: bytes) -> str:
    """The entity whose settings have changed."""

    def read(body: dict[str, Any]) -> str:
        if "entity_path" in body:
            return str(body["entity_path"])
        return f"{body['entity_type']}/{body['entity_name']}"

    return _parse(f"{CONFIG_CHANGES}/{name}", data, read)


def encode_producer_ids(broker: BrokerId, first: ProducerId, following: ProducerId) -> bytes:
    """The block of ids from `first` up to, and without, `following`."""
    return _encode(
        {"version": 1, "broker": broker, "block_start": str(first), "block_end": str(following - 1)}
    )


def parse_producer_ids(data: bytes) -> ProducerId:
    """The first id that is not taken."""
    if not data:
        return ProducerId(0)
    return _parse(PRODUCER_ID_BLOCK, data, lambda body: ProducerId(int(body["block_end"]) + 1))


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def parse_cluster_id(data: bytes) -> str:
    return _parse(CLUSTER_ID, data, lambda body: str(body["id"]))


# What brokers and tools tell the controller


def encode_isr_notice(partitions: Iterable[TopicPartition]) -> bytes:
    rows = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
    return _encode({"version": 1, "partitions": rows})


def parse_partitions(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an ISR notice, or of the wish for an election."""

    def read(body: dict[str, Any]) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(str(row["topic"]), int(row["partition"])) for row in body["partitions"])

    return _parse(path, data, read)


def encode_directory_notice(broker: BrokerId) -> bytes:
    return _encode({"version": 1, "broker": broker, "event": 1})


def parse_directory_notice(path: str, data: bytes) -> BrokerId:
    return _parse(path, data, lambda body: BrokerId(int(body["broker"])))


def parse_reassignments(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """The replicas that a tool wants partitions to have."""

    def read(body: dict[str, Any]) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        rows = body["partitions"]
        return {
            TopicPartition(str(row["topic"]), int(row["partition"])): _ids(row["replicas"]) for row in rows
        }

    return _parse(REASSIGN_PARTITIONS, data, read)


def encode_reassignments(wanted: Mapping[TopicPartition, Sequence[BrokerId]]) -> bytes:
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(ids)} for tp, ids in wanted.items()
    ]
    return _encode({"version": 1, "partitions": rows})


def _encode(body: Mapping[str, Any]) -> bytes:
    return _JSON.encode(body).encode()


def _parse(path: str, data: bytes, read: Callable[[dict[str, Any]], T]) -> T:
    try:
        body = json.loads(data)
        if not isinstance(body, dict):
            raise TypeError("it is not an object")
        return read(body)
    except KeyError as error:
        raise _damaged(path, data, f"it has no {error}") from None
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise _damaged(path, data, str(error)) from None


def _damaged(path: str, data: bytes, why: str) -> DamagedNode:
    shown = data[:80] + b"..." if len(data) > 80 else data
    return DamagedNode(f"The node {path} in ZooKeeper is damaged, {shown!r}: {why}.")


def _ids(numbers: Iterable[Any]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(number)) for number in numbers)


def _lists(body: Mapping[str, Iterable[Any]]) -> dict[int, tuple[BrokerId, ...]]:
    return {int(index): _ids(numbers) for index, numbers in body.items()}


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition("://")[2].rpartition(":")
    return host, int(port)
