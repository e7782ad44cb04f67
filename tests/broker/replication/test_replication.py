"""Leaders and followers on three real brokers: what is acknowledged is on all of them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from barnabas.broker.exposition import BrokerCollector
from barnabas.errors import Code
from barnabas.types import LeaderEpoch, TopicPartition
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.offsets import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from tests.broker.replication.trio import ONE, THREE, TWO, Trio, until
from tests.broker.speaking import batch, produce_request

FAST = {"replica.lag.time.max.ms": "300", "replica.high.watermark.checkpoint.interval.ms": "50"}


def run(tmp_path: Path, work: Callable[[Trio], Awaitable[Any]], **settings: str) -> Any:
    named = {name.replace("_", "."): value for name, value in settings.items()}

    async def with_trio() -> Any:
        async with asyncio.timeout(180), Trio(tmp_path, named) as trio:
            return await work(trio)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(with_trio())


async def produce(trio: Trio, topic: str, *values: bytes, acks: int = -1, timeout_ms: int = 60_000) -> Any:
    """The row of an answer to a produce."""
    request = produce_request(topic, batch(*values), acks=acks)
    request.timeout_ms = timeout_ms
    leader = trio.image.topics[topic].partitions[0].leader
    answer = await trio.ask(leader, request)
    return answer.responses[0].partition_responses[0]


def ends(trio: Trio, topic: str) -> list[int]:
    return [trio.replica(number, topic).log.end for number in trio.brokers]


def bytes_of(trio: Trio, topic: str) -> list[bytes]:
    found = []
    for number in trio.brokers:
        log = trio.replica(number, topic).log
        piece = log.read(log.start, 1 << 20, log.end)
        found.append(piece.read() if piece is not None else b"")
    return found


def test_what_is_acknowledged_is_on_all_replicas_in_sync(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t", min_insync_replicas="2")
        for number in range(20):
            row = await produce(trio, "t", b"%d" % number)
            assert (row.error_code, row.base_offset) == (0, number)
            assert ends(trio, "t") == [number + 1] * 3
            assert trio.leader("t").high_watermark == number + 1
        assert len(set(bytes_of(trio, "t"))) == 1
        await until(lambda: trio.replica(TWO, "t").high_watermark == 20, "the watermark to travel")
        await until(lambda: trio.replica(THREE, "t").high_watermark == 20, "the watermark to travel")

    run(tmp_path, work)


def test_many_partitions_share_one_session(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t", partitions=100)
        await asyncio.gather(
            *(trio.ask(ONE, produce_request("t", batch(b"x" * 2000), index)) for index in range(100))
        )
        for number in (TWO, THREE):
            assert all(trio.replica(number, "t", index).log.end == 1 for index in range(100))

    run(tmp_path, work)


def test_acks_1_is_answered_without_the_followers(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        await trio.stop(TWO)
        row = await produce(trio, "t", b"x", acks=1)
        assert (row.error_code, row.base_offset) == (0, 0)
        assert trio.leader("t").high_watermark == 0, "a replica in sync does not have it"

    run(tmp_path, work)


def test_a_replica_that_is_gone_leaves_the_isr_and_producers_go_on(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t", min_insync_replicas="2")
        await produce(trio, "t", b"a")
        await trio.stop(THREE)
        row = await produce(trio, "t", b"b")
        assert (row.error_code, row.base_offset) == (0, 1)
        assert trio.image.topics["t"].partitions[0].isr == (ONE, TWO)
        await trio.start(THREE)
        await until(lambda: trio.image.topics["t"].partitions[0].isr == (ONE, TWO, THREE), "the ISR to grow")
        assert ends(trio, "t") == [2, 2, 2]

    run(tmp_path, work, **{"replica.lag.time.max.ms": "300"})


def test_too_few_replicas_are_told_before_and_after_the_append(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t", min_insync_replicas="3")
        await produce(trio, "t", b"a")
        await trio.stop(THREE)
        row = await produce(trio, "t", b"b")
        assert row.error_code == Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        row = await produce(trio, "t", b"c")
        assert row.error_code == Code.NOT_ENOUGH_REPLICAS
        assert trio.leader("t").high_watermark == 1
        row = await produce(trio, "t", b"d", acks=1)
        assert row.error_code == 0

    run(tmp_path, work, **{"replica.lag.time.max.ms": "300"})


def test_a_producer_is_told_when_its_time_is_up(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        await trio.stop(THREE)
        row = await produce(trio, "t", b"b", timeout_ms=100)
        assert row.error_code == Code.REQUEST_TIMED_OUT

    run(tmp_path, work)


def test_a_producer_is_told_when_the_leader_is_another(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        await trio.stop(THREE)
        waiting = asyncio.create_task(produce(trio, "t", b"b", timeout_ms=30_000))
        await until(lambda: trio.replica(ONE, "t").log.end == 1, "the append")
        await trio.elect("t", TWO)
        assert (await waiting).error_code == Code.NOT_LEADER_OR_FOLLOWER

    run(tmp_path, work)


def test_a_new_leader_goes_on_and_the_old_one_is_cut(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        await produce(trio, "t", b"a")
        await trio.stop(THREE)
        # Both of the others are cut off from the leader's last record.
        await trio.elect("t", TWO, TWO)
        trio.replica(ONE, "t").log.append(
            memoryview(bytearray(batch(b"lost"))), epoch=LeaderEpoch(0), now=trio.brokers[ONE].clock.now()
        )
        assert trio.replica(ONE, "t").log.end == 2
        row = await produce(trio, "t", b"b", acks=1)
        assert (row.error_code, row.base_offset) == (0, 1)
        await trio.tell(ONE)
        await until(lambda: ends(trio, "t") == [2, 2], "the old leader to follow")
        await until(lambda: len(set(bytes_of(trio, "t"))) == 1, "identical logs")
        assert b"lost" not in bytes_of(trio, "t")[0]
        await trio.start(THREE)
        await until(lambda: ends(trio, "t") == [2, 2, 2], "all of them")
        assert trio.replica(ONE, "t").log.epochs.entries == trio.replica(TWO, "t").log.epochs.entries

    run(tmp_path, work)


def test_a_restarted_replica_begins_with_the_watermark_that_was_written_down(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        await produce(trio, "t", b"a")
        await until(lambda: trio.replica(TWO, "t").high_watermark == 1, "the watermark to travel")
        await trio.stop(THREE)
        await produce(trio, "t", b"b", acks=1)
        await until(lambda: trio.replica(TWO, "t").log.end == 2, "the record to travel")
        await trio.stop(TWO)
        await trio.start(TWO)
        assert (trio.replica(TWO, "t").log.end, trio.replica(TWO, "t").high_watermark) == (2, 1)

    run(tmp_path, work)


def test_a_topic_of_the_same_name_is_not_followed_as_the_old_one(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        await produce(trio, "t", b"a")
        await trio.delete("t")
        await trio.create("t")
        row = await produce(trio, "t", b"b")
        assert (row.error_code, row.base_offset) == (0, 0)
        assert len(set(bytes_of(trio, "t"))) == 1

    run(tmp_path, work)


@pytest.mark.parametrize("acks", [1, -1])
def test_what_must_be_on_the_disk_is_on_that_of_each_replica(tmp_path: Path, acks: int) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t", flush_messages="1")
        for number in range(3):
            row = await produce(trio, "t", b"x", acks=acks)
            assert (row.error_code, row.base_offset) == (0, number)
            flushed = [trio.replica(each, "t").log.recovery_point for each in trio.brokers]
            assert flushed[0] == number + 1
            if acks == -1:
                assert flushed == [number + 1] * 3

    run(tmp_path, work)


def test_readers_see_nothing_above_the_watermark(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        await trio.stop(THREE)
        await produce(trio, "t", b"a", acks=1)
        await until(lambda: ends(trio, "t") == [1, 1], "the follower")
        topic = FetchTopic(
            "t", [FetchPartition(0, partition_max_bytes=1000)], topic_id=trio.image.topics["t"].id
        )
        answer = await trio.ask(ONE, FetchRequest(topics=[topic]))
        row = answer.responses[0].partitions[0]
        assert (row.error_code, row.high_watermark, bytes(row.records)) == (0, 0, b"")

    run(tmp_path, work)


def test_deleted_records_are_gone_from_all_replicas_before_the_answer(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        for number in range(5):
            await produce(trio, "t", b"%d" % number)
        row = DeleteRecordsPartition(0, 3)
        answer = await trio.ask(ONE, DeleteRecordsRequest([DeleteRecordsTopic("t", [row])], 60_000))
        result = answer.topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (0, 3)
        assert [trio.replica(number, "t").log.start for number in trio.brokers] == [3, 3, 3]
        tp = TopicPartition("t", 0)
        unwritten = [number for number, broker in trio.brokers.items() if broker.directories.owes_start(tp)]
        assert not unwritten, "deleted records come back after kill -9"
        await trio.stop(TWO)
        row.offset = 4
        answer = await trio.ask(ONE, DeleteRecordsRequest([DeleteRecordsTopic("t", [row])], 100))
        assert answer.topics[0].partitions[0].error_code == Code.REQUEST_TIMED_OUT
        await trio.tell(ONE)  # that the second is gone: it deletes when it is back
        answer = await trio.ask(ONE, DeleteRecordsRequest([DeleteRecordsTopic("t", [row])], 60_000))
        result = answer.topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (0, 4)
        await trio.start(TWO)
        await until(lambda: trio.replica(TWO, "t").log.start == 4, "the start to travel")

    run(tmp_path, work)


def test_a_new_leader_tells_no_end_that_may_be_below_what_was_seen(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        await produce(trio, "t", b"a")
        await trio.stop(THREE)
        await produce(trio, "t", b"b", acks=1)
        await until(lambda: ends(trio, "t") == [2, 2], "the follower")
        await trio.elect("t", TWO, TWO)
        asked = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])])
        row = (await trio.ask(TWO, asked)).topics[0].partitions[0]
        assert row.error_code == Code.OFFSET_NOT_AVAILABLE

    run(tmp_path, work)


def test_a_reader_is_sent_to_the_replica_in_its_rack_which_serves_what_is_committed(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        await produce(trio, "t", b"a")
        await until(lambda: trio.replica(TWO, "t").high_watermark == 1, "the watermark to travel")
        brokers = dict(trio.image.brokers)
        brokers[TWO] = brokers[TWO]._replace(rack="near")
        trio.image = replace(trio.image, brokers=brokers)
        await trio.tell(*trio.brokers)
        asked = FetchTopic(
            "t", [FetchPartition(0, partition_max_bytes=1000)], topic_id=trio.image.topics["t"].id
        )
        row = (await trio.ask(ONE, FetchRequest(topics=[asked], rack_id="near"))).responses[0].partitions[0]
        assert (row.preferred_read_replica, bytes(row.records)) == (TWO, b"")
        row = (await trio.ask(TWO, FetchRequest(topics=[asked], rack_id="near"))).responses[0].partitions[0]
        assert (row.error_code, row.high_watermark, row.preferred_read_replica) == (0, 1, -1)
        assert b"a" in bytes(row.records)
        row = (await trio.ask(TWO, FetchRequest(topics=[asked]))).responses[0].partitions[0]
        assert row.error_code == Code.NOT_LEADER_OR_FOLLOWER
        waiting = FetchRequest(
            topics=[
                FetchTopic(
                    topic_id=asked.topic_id, partitions=[FetchPartition(0, -1, 1, partition_max_bytes=1000)]
                )
            ],
            rack_id="near",
            max_wait_ms=60_000,
            min_bytes=1,
        )
        parked = asyncio.create_task(trio.ask(TWO, waiting))
        await produce(trio, "t", b"b")
        assert b"b" in bytes((await parked).responses[0].partitions[0].records)

    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    run(tmp_path, work, replica_selector_class=selector)


def test_a_coordinator_answers_when_enough_replicas_have_it_and_says_when_they_do_not(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("__consumer_offsets")
        row = OffsetCommitPartition(0, committed_offset=7)
        commit = OffsetCommitRequest("g", topics=[OffsetCommitTopic("t", [row])])

        async def code() -> int:
            while True:
                answer = await trio.ask(ONE, commit)
                found: int = answer.topics[0].partitions[0].error_code
                if found != Code.COORDINATOR_LOAD_IN_PROGRESS:
                    return found

        await trio.create("t")
        assert await code() == 0
        assert ends(trio, "__consumer_offsets") == [1, 1, 1]
        await trio.stop(THREE)
        assert await code() == Code.COORDINATOR_NOT_AVAILABLE
        assert trio.leader("__consumer_offsets").high_watermark == 1
        # The next leader has loaded what this one has not committed, and is heard once that is.
        await until(lambda: trio.replica(TWO, "__consumer_offsets").log.end == 2, "the follower")
        await trio.elect("__consumer_offsets", TWO, isr=(ONE, TWO))
        await until(lambda: trio.leader("__consumer_offsets").high_watermark >= 2, "the watermark")

    run(tmp_path, work, offsets_commit_timeout_ms="200")


def test_kafkas_metrics_tell_of_replicas_that_are_missing(tmp_path: Path) -> None:
    def value(trio: Trio, name: str) -> float:
        families = BrokerCollector(trio.brokers[ONE]).collect()
        return next(family.samples[0].value for family in families if family.name == name)

    async def work(trio: Trio) -> None:
        await trio.create("t", min_insync_replicas="3")
        await produce(trio, "t", b"a")
        assert value(trio, "kafka_server_replicamanager_underreplicatedpartitions") == 0
        assert value(trio, "kafka_server_replicamanager_atminisrpartitioncount") == 1
        await trio.stop(THREE)
        await produce(trio, "t", b"b")
        assert value(trio, "kafka_server_replicamanager_underreplicatedpartitions") == 1
        assert value(trio, "kafka_server_replicamanager_underminisrpartitioncount") == 1
        assert value(trio, "kafka_server_replicamanager_isrshrinks") == 1

    run(tmp_path, work, replica_lag_time_max_ms="300")


def test_a_retired_setting_is_taken_with_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")

    run(tmp_path, work, replica_lag_max_messages="4000")
    assert "replica.lag.max.messages is retired" in caplog.text
