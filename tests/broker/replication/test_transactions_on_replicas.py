"""Transactions on three real brokers: what is open, what was aborted and what is stable is the same on each replica."""

from dataclasses import replace
from pathlib import Path

from barnabas.broker.partitions.leader import Leader
from barnabas.log.transactions.verifications import TRUSTED
from barnabas.types import Offset, ProducerId
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.broker.replication.test_replication import run
from tests.broker.replication.trio import ONE, THREE, TWO, Trio, until
from tests.broker.speaking import batch

READ_COMMITTED = 1


def write(trio: Trio, leader: Leader, pid: int, sequence: int = 0) -> Offset:
    """A batch of a transaction; its offset."""
    facts = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
    now = trio.brokers[ONE].clock.now()
    return leader.append(memoryview(bytearray(batch(b"x", **facts))), now, TRUSTED).first


def end(trio: Trio, leader: Leader, pid: int, *, commit: bool) -> Offset:
    now = trio.brokers[ONE].clock.now()
    return leader.write_marker(ProducerId(pid), 0, 0, commit=commit, now=now)


def stable(trio: Trio) -> list[int]:
    return [trio.replica(number, "t").last_stable for number in trio.brokers]


def aborted(trio: Trio) -> list[list[tuple[int, int]]]:
    return [
        [
            (each.first, each.last)
            for segment in trio.replica(number, "t").log.segments
            for each in segment.aborted
        ]
        for number in trio.brokers
    ]


def test_a_transaction_has_ended_when_its_marker_is_on_all_replicas_in_sync(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        leader = trio.leader("t")
        write(trio, leader, 1)
        await until(lambda: leader.high_watermark == 1, "the batch to be committed")
        assert stable(trio) == [0, 0, 0]
        end(trio, leader, 1, commit=False)
        assert leader.last_stable == 0, "no follower has the marker yet"
        await until(lambda: stable(trio) == [2, 2, 2], "the marker to be committed everywhere")
        assert aborted(trio) == [[(0, 1)]] * 3

    run(tmp_path, work)


def test_a_transaction_whose_marker_was_never_committed_is_open_on_the_next_leader(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        old = trio.leader("t")
        write(trio, old, 1)
        await until(lambda: stable(trio) == [0, 0, 0] and old.high_watermark == 1, "the batch")
        await trio.stop(THREE)
        await trio.elect("t", TWO, TWO)
        end(trio, old, 1, commit=False)
        await trio.tell(ONE)
        await until(lambda: trio.replica(ONE, "t").log.end == 1, "the old leader to be cut")
        assert stable(trio) == [0, 0]
        assert aborted(trio) == [[], []]
        await trio.start(THREE)
        leader = trio.leader("t")
        write(trio, leader, 1, 1)
        end(trio, leader, 1, commit=True)
        await until(lambda: stable(trio) == [3, 3, 3], "the end of the transaction")
        assert aborted(trio) == [[], [], []]

    run(tmp_path, work)


def test_a_follower_tells_its_readers_what_was_aborted(tmp_path: Path) -> None:
    async def work(trio: Trio) -> None:
        await trio.create("t")
        leader = trio.leader("t")
        write(trio, leader, 1)
        end(trio, leader, 1, commit=False)
        write(trio, leader, 2)
        await until(lambda: trio.replica(TWO, "t").high_watermark == 3, "the watermark to travel")
        brokers = dict(trio.image.brokers)
        brokers[TWO] = brokers[TWO]._replace(rack="near")
        trio.image = replace(trio.image, brokers=brokers)
        await trio.tell(*trio.brokers)
        asked = FetchTopic(
            "t", [FetchPartition(0, partition_max_bytes=1000)], topic_id=trio.image.topics["t"].id
        )
        request = FetchRequest(topics=[asked], rack_id="near", isolation_level=READ_COMMITTED)
        row = (await trio.ask(TWO, request)).responses[0].partitions[0]
        assert (row.high_watermark, row.last_stable_offset) == (3, 2)
        assert [(each.producer_id, each.first_offset) for each in row.aborted_transactions] == [(1, 0)]

    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    run(tmp_path, work, replica_selector_class=selector)
