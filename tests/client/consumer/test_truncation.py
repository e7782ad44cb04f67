"""Promises of a consumer whose log has lost its tail and was written anew: it notices, and says so or goes back."""

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, AsyncConsumer, Consumer, Producer, TopicPartition
from barnabas.client.consumer.partition_reader import read_partition
from barnabas.errors import LogTruncated, OffsetOutOfRange
from barnabas.testing import Broker
from barnabas.wire.batch import read_header
from tests.deadline import Deadline, eventually
from tests.process import free_port
from tests.segments import partition as folder_of

HERE = TopicPartition("t", 0)
FAST: Any = {"fetch_max_wait_ms": 50, "retry_backoff_ms": 10, "heartbeat_interval_ms": 50}
QUICK = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}


class Damaged:
    """A broker on one port whose partition can lose its tail."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._port = free_port()
        self.broker = self._new()
        with Admin(self.bootstrap) as admin:
            admin.create_topic("t")

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def _new(self) -> Broker:
        return Broker(QUICK, data=self.data, port=self._port).start()

    def write(self, word: str, numbers: range) -> None:
        """A batch a record, so that a tail can be cut anywhere."""
        with Producer(self.bootstrap) as producer:
            for number in numbers:
                producer.send("t", f"{word} {number}".encode()).result()

    def lose_tail(self, end: int) -> None:
        """Start again with a log that ends at this offset, as after a power cut."""
        self.broker.stop()
        folder = folder_of(self.data, "t-0")
        (log,) = folder.glob("*.log")
        data = log.read_bytes()
        at = 0
        while at < len(data) and (header := read_header(data, at)).base_offset < end:
            at += header.size
        log.write_bytes(data[:at])
        for index in folder.glob("*index"):
            index.unlink()
        # Of what a power cut takes nothing was flushed: below the recovery point no offset is given out again.
        folder.with_name("recovery-point-offset-checkpoint").unlink()
        self.broker = self._new()


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[Damaged]:
    found = Damaged(tmp_path)
    yield found
    found.broker.stop()


def read(consumer: Consumer, count: int) -> list[str]:
    """This many records, and not one more."""
    found: list[str] = []
    deadline = Deadline(60, f"{count} records, after {found}")
    while len(found) < count:
        records = consumer.poll(deadline.left(0.5), max_records=count - len(found))
        found += [record.value.decode() for record in records]
    return found


def said(word: str, numbers: range) -> list[str]:
    return [f"{word} {number}" for number in numbers]


def consumer_of(damaged: Damaged, reset: str, **settings: object) -> Consumer:
    return Consumer(bootstrap_servers=damaged.bootstrap, auto_offset_reset=reset, **FAST, **settings)  # type: ignore[arg-type]


def truncation(consumer: Consumer) -> LogTruncated:
    deadline = Deadline(60, "a truncation to be told of")
    while True:
        try:
            consumer.poll(deadline.left(0.5))
        except LogTruncated as why:
            return why


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_that_stayed_goes_back_to_where_the_logs_part(
    damaged: Damaged, reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    damaged.write("old", range(10))
    with consumer_of(damaged, reset) as consumer:
        consumer.assign({HERE: 0})
        assert read(consumer, 10) == said("old", range(10))
        damaged.lose_tail(6)
        damaged.write("new", range(6, 12))
        assert read(consumer, 6) == said("new", range(6, 12)), "what was rewritten is read"
        assert consumer.position(HERE) == 12
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len([each for each in warnings if "t-0" in each and "offsets 6 to 9" in each]) == 1, warnings


def test_where_nothing_was_lost_nothing_is_said(damaged: Damaged, caplog: pytest.LogCaptureFixture) -> None:
    damaged.write("old", range(10))
    with consumer_of(damaged, "none") as consumer:
        consumer.assign({HERE: 0})
        assert read(consumer, 10) == said("old", range(10))
        for first in (10, 12):
            damaged.lose_tail(first)
            damaged.write("more", range(first, first + 2))
            assert read(consumer, 2) == said("more", range(first, first + 2))
    assert not [each for each in caplog.records if "rewritten" in each.getMessage()]


def test_without_a_reset_policy_the_user_hears_of_it_and_can_seek(damaged: Damaged) -> None:
    damaged.write("old", range(10))
    with consumer_of(damaged, "none") as consumer:
        consumer.assign({HERE: 0})
        assert read(consumer, 10) == said("old", range(10))
        damaged.lose_tail(6)
        damaged.write("new", range(6, 12))
        why = truncation(consumer)
        assert (why.partition, why.offset, why.divergent) == (HERE, 10, 6)
        assert isinstance(why, OffsetOutOfRange), "a reset policy of none is told of as before"
        assert re.search("t-0.*offsets 6 to 9.*seek first, to offset 6", str(why))
        with pytest.raises(OffsetOutOfRange, match="seek first"):
            consumer.poll(0.2)  # and again, as long as no seek has answered it
        consumer.seek(HERE, 6)
        assert read(consumer, 6) == said("new", range(6, 12))


def test_a_group_that_comes_back_notices_by_what_it_has_committed(damaged: Damaged) -> None:
    damaged.write("old", range(10))
    with consumer_of(damaged, "earliest", group_id="g") as consumer:
        consumer.subscribe("t")
        assert read(consumer, 10) == said("old", range(10))
        consumer.commit()
    damaged.lose_tail(6)
    damaged.write("new", range(6, 12))
    with consumer_of(damaged, "none", group_id="g") as consumer:
        consumer.assign([HERE])
        assert truncation(consumer).divergent == 6
    with consumer_of(damaged, "earliest", group_id="g") as consumer:
        consumer.subscribe("t")
        assert read(consumer, 6) == said("new", range(6, 12))
        consumer.commit()
    with consumer_of(damaged, "none", group_id="g") as consumer:
        consumer.subscribe("t")
        eventually(lambda: not consumer.poll(0.05) and consumer.assignment(), "the group")
        assert consumer.position(HERE) == 12, "the commit carries the epoch of what was read anew"


def test_columns_are_read_anew_too(damaged: Damaged) -> None:
    damaged.write("old", range(10))
    found: list[bytes] = []

    def more(consumer: Consumer, end: int) -> bool:
        batch = consumer.poll_arrow(0.05, columns=["value"])
        found.extend(batch["value"].to_pylist() if batch is not None else [])
        return len(found) >= end

    with consumer_of(damaged, "earliest") as consumer:
        consumer.assign({HERE: 0})
        eventually(lambda: more(consumer, 10), "ten records")
        damaged.lose_tail(6)
        damaged.write("new", range(6, 12))
        eventually(lambda: more(consumer, 16), "six more")
    assert [each.decode() for each in found[10:]] == said("new", range(6, 12))


def test_an_async_consumer_hears_of_it(damaged: Damaged) -> None:
    damaged.write("old", range(10))

    async def run() -> None:
        async with AsyncConsumer(
            bootstrap_servers=damaged.bootstrap, auto_offset_reset="none", **FAST
        ) as consumer:
            await consumer.assign({HERE: 0})
            found = 0
            while found < 10:
                found += len(await consumer.poll(5.0))
            await asyncio.to_thread(damaged.lose_tail, 6)
            await asyncio.to_thread(damaged.write, "new", range(6, 12))
            with pytest.raises(LogTruncated) as told:
                await consumer.poll(30.0)
            assert told.value.divergent == 6

    asyncio.run(run())


def test_a_reader_of_a_stretch_tells_of_what_was_rewritten_under_it(
    damaged: Damaged, caplog: pytest.LogCaptureFixture
) -> None:
    damaged.write("old", range(20))

    def reader(**settings: object) -> "Iterator[object]":
        # A fetch a record.
        return read_partition(
            damaged.bootstrap,
            HERE,
            0,
            20,
            ["offset"],
            fetch_max_bytes=1,
            retry_backoff_ms=10,
            **settings,  # type: ignore[arg-type]
        )

    strict, lenient = reader(), reader(fail_on_data_loss=False)
    for each in (strict, lenient):
        for _ in range(10):
            next(each)
    damaged.lose_tail(6)
    damaged.write("new", range(6, 20))
    with pytest.raises(LogTruncated, match=r"t-0.*offsets 6 to"):
        list(strict)
    with caplog.at_level(logging.WARNING):
        list(lenient)
    assert any("offsets 6 to" in each.getMessage() for each in caplog.records)
