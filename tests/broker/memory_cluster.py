"""Several brokers in this process, each in a thread of its own with real sockets; their metadata is in memory."""

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from barnabas.broker.broker import Broker as RunningBroker
from barnabas.config import BrokerConfig
from barnabas.testing import Broker
from barnabas.testing.store import MemoryCluster, MemoryStore
from barnabas.types import BrokerId
from tests.broker.full_disk import FillableDisk
from tests.deadline import eventually

T = TypeVar("T")


class Member(Broker):
    """One broker of the cluster. `running` is the broker itself, to look at; `disk` can be made full."""

    def __init__(self, cluster: MemoryCluster, number: int, data: Path, settings: Mapping[str, str]) -> None:
        super().__init__({"broker.id": number, **settings}, data=data)
        self.id = BrokerId(number)
        self._cluster = cluster
        self.disk = FillableDisk()
        self.running: RunningBroker
        self.store: MemoryStore

    def _made(self, config: BrokerConfig) -> RunningBroker:
        self.store = self._cluster.open()
        self.running = RunningBroker(config, store=self.store, disk=self.disk)
        return self.running

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of this, done on the broker's own loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


class Members:
    """Brokers 1 to N. A `with` block stops those that run when it ends. `{data}` in a setting is a broker's folder."""

    def __init__(self, folder: Path, brokers: int = 3, settings: Mapping[str, str] | None = None) -> None:
        self.cluster = MemoryCluster()
        given = {"offsets.topic.num.partitions": "3", **(settings or {})}
        self.all = []
        for number in range(1, brokers + 1):
            data = folder / f"broker-{number}"
            own = {name: value.replace("{data}", str(data)) for name, value in given.items()}
            self.all.append(Member(self.cluster, number, data, own))

    def __getitem__(self, number: int) -> Member:
        return self.all[number - 1]

    def __enter__(self) -> "Members":
        try:
            for member in self.all:
                member.start()
        except BaseException:
            self._stop()
            raise
        self.until_known(len(self.all))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def until_known(self, count: int) -> None:
        """Come back when every broker knows of this many."""
        eventually(
            lambda: all(len(m.running.metadata.image.brokers) == count for m in self.all if m.is_running),
            f"all brokers to know of {count}",
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(member.bootstrap for member in self.all)

    def _stop(self) -> None:
        for member in self.all:
            member.stop()
