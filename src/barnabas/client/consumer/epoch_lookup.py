"""Asks the leaders of partitions where epochs ended (OffsetForLeaderEpoch). In the network's thread."""

from collections.abc import Callable, Iterable

from barnabas.client.consumer.reading import Check, EpochEnd
from barnabas.client.network.failures import check, refusal
from barnabas.client.network.network import Network
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.messages.epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_CONSUMER = -1


def ask_epoch_ends(
    network: Network, checks: Iterable[Check], done: Callable[[list[tuple[Check, EpochEnd | Refused]]], None]
) -> None:
    """One request to each leader; `done` hears what each has said, check by check."""
    by_node: dict[BrokerId, list[Check]] = {}
    for each in checks:
        by_node.setdefault(each.leader.node, []).append(each)
    for node, asked in by_node.items():
        network.ask(node, _request(asked), OffsetForLeaderEpochResponse, _hears(asked, done))


def _request(checks: list[Check]) -> OffsetForLeaderEpochRequest:
    topics: dict[str, OffsetForLeaderTopic] = {}
    for each in checks:
        topic, number = each.asked.reading.partition
        row = topics.setdefault(topic, OffsetForLeaderTopic(topic))
        row.partitions.append(OffsetForLeaderPartition(number, each.leader.epoch, each.epoch))
    return OffsetForLeaderEpochRequest(_CONSUMER, list(topics.values()))


def _hears(
    asked: list[Check], done: Callable[[list[tuple[Check, EpochEnd | Refused]]], None]
) -> Callable[[OffsetForLeaderEpochResponse | Refused], None]:
    def told(answer: OffsetForLeaderEpochResponse | Refused) -> None:
        if isinstance(answer, Refused):
            done([(each, answer) for each in asked])
            return
        found = _ends(answer)
        done([(each, found.get(each.asked.reading.partition, _silence(each))) for each in asked])

    return told


def _ends(answer: OffsetForLeaderEpochResponse) -> dict[TopicPartition, EpochEnd | Refused]:
    found: dict[TopicPartition, EpochEnd | Refused] = {}
    for topic in answer.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.topic, row.partition)
            try:
                check(row.error_code, f"Partition {partition}")
            except Refused as why:
                found[partition] = why
            else:
                found[partition] = EpochEnd(row.leader_epoch, row.end_offset)
    return found


def _silence(check: Check) -> Refused:
    """A broker owes an answer for every partition."""
    return refusal(Code.LEADER_NOT_AVAILABLE, f"Partition {check.asked.reading.partition}")
