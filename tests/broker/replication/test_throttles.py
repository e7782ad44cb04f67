"""Replicas that catch up are held to a rate, on the leader's side and on the follower's; nothing else is."""

import asyncio
from pathlib import Path

import pytest

from barnabas.broker.exposition import BrokerCollector
from barnabas.cluster.image import BrokersConfigured, TopicConfigured
from barnabas.replication.throttle import FOLLOWERS, LEADERS
from barnabas.types import BrokerId
from tests.broker.replication.test_replication import produce, run
from tests.broker.replication.trio import ONE, THREE, TWO, Trio, until
from tests.broker.speaking import batch, produce_request

PIECE = 100_000
PIECES = 30
RATE = 1_000_000
SMALL_FETCHES = {"replica.fetch.max.bytes": str(PIECE)}
FULL = (ONE, TWO, THREE)

SIDES = pytest.mark.parametrize("side", [LEADERS, FOLLOWERS])


async def throttle(trio: Trio, side: str, replicas: str, rate: int | None = RATE, *topics: str) -> None:
    """Set, or with no replicas and no rate take back, what Kafka's tools do."""
    configs = {f"{side}.replicas": replicas} if replicas else {}
    rates = {} if rate is None else {f"{side}.rate": str(rate)}
    trio.image = trio.image.after(
        [
            *(TopicConfigured(topic, configs) for topic in topics or ("t",)),
            *(BrokersConfigured(str(broker), rates) for broker in trio.brokers),
        ]
    )
    await trio.tell(*trio.brokers)


async def fill(trio: Trio, topic: str, pieces: int = PIECES, index: int = 0) -> None:
    """Write to a leader that waits for none of its followers."""
    for _ in range(pieces):
        request = produce_request(topic, batch(b"x" * PIECE), index, acks=1)
        answer = await trio.ask(ONE, request)
        assert not answer.responses[0].partition_responses[0].error_code


async def add_replica(trio: Trio, topic: str, replicas: tuple[BrokerId, ...], index: int = 0) -> None:
    """As a reassignment does it: the new replica is not in sync."""
    trio.change(topic, index, replicas=replicas)
    await trio.tell(*trio.brokers)


def end(trio: Trio, number: BrokerId, topic: str = "t", index: int = 0) -> int:
    found = trio.brokers[number].replicas.find(topic, index)
    return 0 if found is None else found.log.end


@SIDES
@pytest.mark.parametrize("named", ["*", "0:1,0:3"])
def test_a_throttled_move_takes_as_long_as_its_bytes_do_at_the_rate(
    tmp_path: Path, side: str, named: str
) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t", (ONE, TWO))
        await fill(trio, "t")
        await throttle(trio, side, named)
        begun = asyncio.get_running_loop().time()
        await add_replica(trio, "t", FULL)
        await until(lambda: end(trio, THREE) == PIECES, "the copy")
        took = asyncio.get_running_loop().time() - begun
        # The last piece need not be waited for; a clock of milliseconds is rounded.
        assert took >= (PIECES - 1) * PIECE / RATE - 0.01
        await until(lambda: trio.image.topics["t"].partitions[0].isr == FULL, "the replica to be in sync")

    run(tmp_path, work, **SMALL_FETCHES)


@SIDES
def test_others_go_on_while_a_throttled_replica_waits(tmp_path: Path, side: str) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t", (ONE, TWO))
        await trio.create("other", (ONE, TWO))
        for topic in ("t", "other"):
            await fill(trio, topic)
        await throttle(trio, side, "*", 1)
        await add_replica(trio, "t", FULL)
        await until(lambda: end(trio, THREE), "a first piece")
        await add_replica(trio, "other", FULL)
        await until(lambda: end(trio, THREE, "other") == PIECES, "the copy that is not throttled")
        # The replica that is in sync is counted, and not held back: producers do not wait for the throttle.
        row = await produce(trio, "t", b"y")
        assert (row.error_code, row.base_offset) == (0, PIECES)
        assert end(trio, TWO) == PIECES + 1
        assert end(trio, THREE) < PIECES

    run(tmp_path, work, **SMALL_FETCHES)


@SIDES
@pytest.mark.parametrize(("named", "rate"), [("", 1), ("*", None), ("*", 1 << 40), ("0:2", 1)])
def test_a_throttle_that_is_lifted_ends_the_wait_at_once(
    tmp_path: Path, side: str, named: str, rate: int | None
) -> None:
    """At this rate a piece passes when all windows are over: the copy would take five minutes."""

    async def work(trio: Trio) -> None:
        await trio.create("t", (ONE, TWO))
        await fill(trio, "t")
        await throttle(trio, side, "*", 1)
        await add_replica(trio, "t", FULL)
        await until(lambda: end(trio, THREE), "a first piece")
        assert end(trio, THREE) < PIECES
        await throttle(trio, side, named, rate)
        await until(lambda: end(trio, THREE) == PIECES, "the rest")

    run(tmp_path, work, **SMALL_FETCHES)


@SIDES
def test_partitions_of_one_throttle_take_turns(tmp_path: Path, side: str) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t", (ONE, TWO), partitions=4)
        for index in range(4):
            await fill(trio, "t", 3, index)
        await throttle(trio, side, "*", 3 * PIECE)
        for index in range(4):
            trio.change("t", index, replicas=FULL)
        await trio.tell(*trio.brokers)

        def are_there() -> bool:
            ends = [end(trio, THREE, "t", index) for index in range(4)]
            assert max(ends) - min(ends) < 3, "one was copied whole before another began"
            return min(ends) == 3

        await until(are_there, "all copies")

    run(tmp_path, work, **SMALL_FETCHES)


def test_kafkas_metrics_tell_the_rate_of_throttled_replicas(tmp_path: Path) -> None:
    def rate(trio: Trio, number: BrokerId, side: str) -> float:
        families = {each.name: each for each in BrokerCollector(trio.brokers[number]).collect()}
        return families[f"kafka_server_{side}replication_byte_rate"].samples[0].value

    async def work(trio: Trio) -> None:
        await trio.create("t", (ONE, TWO))
        await fill(trio, "t", 3)
        assert rate(trio, ONE, "leader") == rate(trio, THREE, "follower") == 0
        both = {f"{side}.replicas": "*" for side in (LEADERS, FOLLOWERS)}
        trio.image = trio.image.after([TopicConfigured("t", both)])
        await trio.tell(*trio.brokers)
        await add_replica(trio, "t", FULL)
        await until(lambda: end(trio, THREE) == 3, "the copy")
        assert rate(trio, ONE, "leader") > 0
        assert rate(trio, THREE, "follower") > 0
        assert rate(trio, TWO, "leader") == rate(trio, ONE, "follower") == 0

    run(tmp_path, work)
