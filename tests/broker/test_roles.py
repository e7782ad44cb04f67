"""A partition leads or follows, as the image says: nothing is produced to, or read from, a follower by accident."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.partitions.follower import Follower
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.partitions.replicas import Replicas
from barnabas.clock import SystemClock
from barnabas.cluster.image import ClusterImage, PartitionImage, TopicImage, Topics
from barnabas.config import BrokerConfig
from barnabas.disk import RealDisk
from barnabas.errors import Code, Refused
from barnabas.log.directories import Directories
from barnabas.replication.following import FetchAnswer
from barnabas.types import BrokerId, LeaderEpoch, Offset
from tests.broker.speaking import batch

ME, OTHER = BrokerId(1), BrokerId(2)
NOW = SystemClock().now()
TOPIC_ID = uuid.UUID(int=7)


class Noticed:
    """Counts how often it is woken."""

    def __init__(self) -> None:
        self.times = 0

    def wake(self, partition: Partition) -> None:
        self.times += 1


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    directories = Directories.open(RealDisk(), [str(tmp_path)], node_id=ME, clock=SystemClock())
    replicas = Replicas(ME, directories, BrokerConfig(), lambda partition: None)
    asyncio.run(replicas.start(ClusterImage("cluster", ME, {})))
    return replicas


def follow(replicas: Replicas, leader: BrokerId, epoch: int) -> None:
    """Let the image say that this broker leads the partition of a topic, or follows."""
    partition = PartitionImage(
        leader=leader, leader_epoch=LeaderEpoch(epoch), replicas=(ME, OTHER), isr=(leader,)
    )
    topic = TopicImage("t", TOPIC_ID, (partition,))
    image = ClusterImage("cluster", ME, {})
    asyncio.run(replicas.follow(replace(image, topics=Topics([topic]))))


def hear(follower: Follower, records: bytes, high_watermark: int) -> None:
    """Let a follower be answered by its leader."""
    position = follower.following.next_fetch(NOW)
    assert position is not None
    answer = FetchAnswer(Code.NONE, Offset(high_watermark), Offset(0), records=bytearray(records))
    assert follower.heard(position, answer, NOW, NOW) == []


def refusal(look_up: Callable[[], Any]) -> Code:
    with pytest.raises(Refused) as refused:
        look_up()
    return refused.value.code


def test_a_leader_is_found_as_such_and_takes_records(replicas: Replicas) -> None:
    follow(replicas, ME, 3)
    leader = replicas.leader("t", 0)
    assert replicas.find_leader("t", 0) is replicas.find("t", 0) is leader
    leader.append(memoryview(bytearray(batch(b"x"))), NOW)
    assert leader.high_watermark == 1
    assert leader.epoch == 3


def test_a_follower_is_no_leader_to_any_look_up(replicas: Replicas) -> None:
    follow(replicas, OTHER, 3)
    assert isinstance(replicas.find("t", 0), Follower)
    assert replicas.find_leader("t", 0) is None
    assert replicas.lookup_leader(("t", 0)) is None
    assert refusal(lambda: replicas.leader("t", 0)) is Code.NOT_LEADER_OR_FOLLOWER
    assert refusal(lambda: replicas.leader("t", 1)) is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert not hasattr(Follower, "append")


def test_a_follower_shows_what_its_leader_says_and_what_it_has(replicas: Replicas) -> None:
    follow(replicas, OTHER, 0)
    follower = replicas.find("t", 0)
    assert isinstance(follower, Follower)
    hear(follower, batch(b"a", b"b", leader_epoch=0), 1)
    assert (follower.log.end, follower.high_watermark) == (2, 1)
    hear(follower, b"", 9)
    assert follower.high_watermark == 2
    hear(follower, b"", 0)
    assert follower.high_watermark == 2, "it never falls"


def test_a_change_of_roles_keeps_the_log_and_wakes_what_waits(replicas: Replicas) -> None:
    follow(replicas, ME, 3)
    leader = replicas.leader("t", 0)
    leader.append(memoryview(bytearray(batch(b"x"))), NOW)
    waiting = Noticed()
    leader.watch(waiting)
    follow(replicas, OTHER, 4)
    assert waiting.times == 1
    follower = replicas.find("t", 0)
    assert isinstance(follower, Follower)
    assert (follower.log, follower.epoch, follower.high_watermark) == (leader.log, 4, 1)
    follow(replicas, ME, 5)
    again = replicas.leader("t", 0)
    assert isinstance(again, Leader)
    assert (again.log, again.epoch, again.high_watermark) == (leader.log, 5, 1)


def test_another_epoch_of_the_same_role_keeps_the_partition(replicas: Replicas) -> None:
    follow(replicas, ME, 3)
    leader = replicas.leader("t", 0)
    follow(replicas, ME, 4)
    assert replicas.leader("t", 0) is leader
    assert leader.epoch == 4
