"""Coordinators of another kind move in beside groups: a topic and a factory, and the host is the same.

The neighbour here adds numbers under names. It knows no groups, and the broker knows nothing of it.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.coordinators import Coordinators, InternalTopic, TopicShape
from barnabas.cluster.image import LeaderRestarted
from barnabas.config import BrokerConfig, broker_config
from barnabas.coordinator.effects import NEVER, Context, TopicChanges, TopicFacts
from barnabas.disk import RealDisk, RealFile
from barnabas.errors import Code, Refused
from barnabas.types import Buffer

DEADLINE_S = 60.0
TOPIC = InternalTopic("__sums", lambda config: TopicShape(3, 1, 1 << 20))


@dataclass
class Effects:
    records: list[tuple[str, int]] = field(default_factory=list)
    replies: list[tuple[Any, Any]] = field(default_factory=list)
    sends: tuple[Any, ...] = ()


class Sums:
    """All names of one partition, and the requests that wait for one to be large enough."""

    def __init__(self, config: BrokerConfig, topics: Mapping[str, TopicFacts]) -> None:
        self.sums: dict[str, int] = {}
        self.waiting: list[Any] = []
        self.deadline = NEVER

    def handle(self, request: Any, context: Context, now: int, token: Any) -> Effects:
        out = Effects()
        match request:
            case "add", name, number if number < 0:
                out.replies.append((token, Refused(Code.INVALID_REQUEST, f"{number} is no sum")))
            case "add", name, number:
                total = self.sums.get(name, 0) + number
                out.records.append((name, total))
                out.replies.append((token, total))
            case "wait":
                self.waiting.append(token)
        return out

    def tick(self, now: int) -> Effects:
        return Effects()

    def topics_changed(
        self, topics: Mapping[str, TopicFacts], now: int, changes: TopicChanges | None = None
    ) -> Effects:
        return Effects()

    def apply(self, record: tuple[str, int]) -> None:
        self.sums[record[0]] = record[1]

    def apply_in(self, producer_id: int, record: tuple[str, int]) -> None:
        """Sums are not part of transactions."""

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Sums are not part of transactions."""

    def loaded(self, now: int) -> Effects:
        return Effects()

    def resign(self, code: Code) -> Effects:
        return Effects(replies=[(token, Refused(code)) for token in self.waiting])


class SumsFactory:
    make = Sums

    def encode(self, record: tuple[str, int], /) -> tuple[bytes, bytes | None]:
        return record[0].encode(), b"%d" % record[1]

    def decode(self, key: Buffer, value: Buffer | None, /) -> Any:
        return bytes(key).decode(), int(bytes(value or b"0"))


def with_broker(
    data: Path,
    work: Callable[[Broker, Coordinators[Sums]], Awaitable[None]],
    disk: RealDisk | None = None,
    **settings: str,
) -> None:
    """Run something beside a broker that has a second kind of coordinators."""
    given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data)}
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    config, _ = broker_config(given)

    async def run() -> None:
        broker = Broker(config, disk=disk)
        await broker.start()
        try:
            sums = Coordinators[Sums](broker, TOPIC, SumsFactory)
            broker.coordinators.append(sums)
            sums.start()
            async with asyncio.timeout(DEADLINE_S):
                await work(broker, sums)
        finally:
            await broker.stop()

    asyncio.run(run())


async def add(sums: Coordinators[Sums], name: str, number: int) -> Any:
    """Asks as a handler does, and again while the coordinator is loaded."""
    while True:
        try:
            outcome = sums.host(name).ask(("add", name, number), Context(0))
            return await outcome if isinstance(outcome, asyncio.Future) else outcome
        except Refused as refused:
            if refused.code is not Code.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            await asyncio.gather(*sums._loading)


def test_a_second_kind_of_coordinators_keeps_what_it_decides_over_a_restart(tmp_path: Path) -> None:
    async def first(broker: Broker, sums: Coordinators[Sums]) -> None:
        assert await sums.find("a") == broker.id
        assert len(broker.metadata.image.topics[TOPIC.name].partitions) == 3
        assert [await add(sums, "a", 1), await add(sums, "b", 10), await add(sums, "a", 2)] == [1, 10, 3]
        assert broker.groups.all() == []

    async def second(broker: Broker, sums: Coordinators[Sums]) -> None:
        assert [await add(sums, "a", 1), await add(sums, "b", 1)] == [4, 11]

    with_broker(tmp_path, first)
    with_broker(tmp_path, second)


def test_a_refusal_of_a_coordinator_is_raised_where_it_was_asked(tmp_path: Path) -> None:
    async def work(broker: Broker, sums: Coordinators[Sums]) -> None:
        await sums.find("a")
        with pytest.raises(Refused, match="-1 is no sum") as caught:
            await add(sums, "a", -1)
        assert caught.value.code is Code.INVALID_REQUEST

    with_broker(tmp_path, work)


def test_another_leader_epoch_ends_a_host_and_begins_another(tmp_path: Path) -> None:
    async def work(broker: Broker, sums: Coordinators[Sums]) -> None:
        await sums.find("a")
        await add(sums, "a", 5)
        former = sums.host("a")
        waiting = former.ask("wait", Context(0))
        await broker.metadata.change(lambda image: [LeaderRestarted(broker.id)])
        with pytest.raises(Refused) as caught:
            await waiting
        assert caught.value.code is Code.NOT_COORDINATOR
        assert await add(sums, "a", 1) == 6
        assert sums.host("a") is not former
        assert sums.host("a").epoch == former.epoch + 1
        # What the former host still decides does not reach the log.
        with pytest.raises(Refused) as caught:
            former.ask(("add", "a", 100), Context(0))
        assert caught.value.code is Code.NOT_COORDINATOR
        assert await add(sums, "a", 1) == 7

    with_broker(tmp_path, work)


class SlowDisk(RealDisk):
    """Brings the records of the sums to the disk only while it is `free`."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        return SlowFile(file, self.free) if TOPIC.name in path and path.endswith(".log") else file


class SlowFile(RealFile):
    __slots__ = ("_free",)

    def __init__(self, file: RealFile, free: threading.Event) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        self._free = free

    def sync(self) -> None:
        assert self._free.wait(DEADLINE_S)
        super().sync()


def test_what_an_epoch_has_left_above_the_watermark_counts_in_the_next(tmp_path: Path) -> None:
    disk = SlowDisk()

    async def work(broker: Broker, sums: Coordinators[Sums]) -> None:
        await sums.find("a")
        assert await add(sums, "a", 5) == 5
        disk.free.clear()
        former = sums.host("a").ask(("add", "a", 10), Context(0))
        assert isinstance(former, asyncio.Future), "it waits for the disk"
        await broker.metadata.change(lambda image: [LeaderRestarted(broker.id)])
        with pytest.raises(Refused):
            await former
        await asyncio.gather(*sums._loading)
        after = sums.host("a").ask(("add", "a", 1), Context(0))
        assert isinstance(after, asyncio.Future), "it is made of what could still be lost"
        disk.free.set()
        assert await after == 16

    with_broker(tmp_path, work, disk, log_flush_interval_messages="1")
