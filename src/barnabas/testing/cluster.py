"""A real cluster inside a test: ZooKeeper and broker processes, each of which can be killed, paused or cut off.

from barnabas.testing import Cluster

with Cluster(brokers=3) as cluster:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    cluster.kill(cluster.leader("orders"))
    cluster.wait_until_in_sync()

Clusters of one test run share one ZooKeeper, each below a path of its own. Always holds: nothing that was started is
left when the test ends, however it ends.
"""

import atexit
import shutil
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import TracebackType

from barnabas.errors import BarnabasError
from barnabas.processes.broker import BrokerProcess, Ports
from barnabas.processes.cluster import replicated, start_all, wait_until_in_sync
from barnabas.processes.zookeeper import ZooKeeperProcess, start_ensemble, start_zookeeper
from barnabas.testing.broker import as_text
from barnabas.testing.links import Links
from barnabas.testing.proxy import Proxy

IN_SYNC_S = 60.0
LOOPBACK = "127.0.0.1"


class Cluster:
    """Brokers 1 to N for as long as the `with` block lasts. Settings are Kafka's, and count for each broker.

    Topics get three replicas, of which two have to be in sync, unless settings say otherwise. With `data` the cluster
    keeps its data there, and a second one on the same folder goes on from it. `racks` names each broker's rack.
    `cut` and `heal` need `links=True`: everything goes through proxies then. A test that kills ZooKeeper says
    `own_zookeeper=True`, for the shared one serves other clusters, too; with `zookeepers=3` the cluster has an ensemble
    of its own.
    """

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, str | float] | None = None,
        *,
        data: Path | str | None = None,
        racks: Sequence[str] = (),
        links: bool = False,
        own_zookeeper: bool = False,
        zookeepers: int = 1,
    ) -> None:
        if brokers < 1:
            raise BarnabasError(f"A cluster has one broker at least, not {brokers}.")
        if racks and len(racks) != brokers:
            raise BarnabasError(f"There are {brokers} brokers, and racks for {len(racks)}.")
        self._is_temporary = data is None
        self.data = (
            Path(data) if data is not None else Path(tempfile.gettempdir()) / f"barnabas-{uuid.uuid4().hex}"
        )
        self._settings = {
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.check.interval.ms": str(1 << 40),
            "offsets.topic.num.partitions": "4",
            "zookeeper.chroot.create": "true",
            **replicated(brokers),
            **{name: as_text(name, value) for name, value in (settings or {}).items()},
        }
        self._count = brokers
        self._racks = list(racks)
        self._with_links = links
        self._zookeeper_count = zookeepers
        self._own_zookeeper = own_zookeeper or zookeepers > 1
        self._ports = Ports()
        self.zookeepers: list[ZooKeeperProcess] = []
        """The servers that keep the metadata."""
        self._proxies: dict[int, Proxy] = {}
        self._stores: dict[int, list[Proxy]] = {}
        self.brokers: dict[int, BrokerProcess] = {}
        """The processes by their broker.id; those that were killed, too."""

    # As a whole

    def start(self) -> "Cluster":
        """Returns once all brokers serve at `bootstrap` and see one another."""
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self.zookeepers = self._start_zookeepers()
            for number in range(1, self._count + 1):
                self._add(number, self._racks[number - 1] if self._racks else None)
            start_all(self.brokers.values())
            self.wait_until_in_sync()
        except BaseException:
            self.stop_all()
            raise
        return self

    def stop_all(self) -> None:
        """End every process at once; the temporary folder goes with them."""
        for broker in self.brokers.values():
            broker.close()
        for proxy in (*self._proxies.values(), *chain.from_iterable(self._stores.values())):
            proxy.stop()
        for zookeeper in self.zookeepers if self._own_zookeeper else ():
            zookeeper.kill()
        self.zookeepers.clear()
        self._ports.close()
        self._proxies.clear()
        self._stores.clear()
        self.brokers.clear()
        if self._is_temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_all()

    @property
    def bootstrap(self) -> str:
        """All brokers, those that are down, too: as a client of a real cluster has them."""
        return ",".join(broker.advertised for broker in self.brokers.values())

    @property
    def zookeeper(self) -> ZooKeeperProcess:
        """The process that keeps the metadata: `kill`, `pause`, `resume`, `start().wait_ready()`."""
        if not self.zookeepers:
            raise BarnabasError("The cluster was not started.")
        return self.zookeepers[0]

    @property
    def zookeeper_connect(self) -> str:
        """What brokers and commands are given as zookeeper.connect."""
        return f"{','.join(each.address for each in self.zookeepers)}/{self.data.name}"

    def wait_until_in_sync(self, timeout: float = IN_SYNC_S) -> None:
        """Returns when each running broker sees all of them, and every partition has a leader and its full ISR."""
        running = [number for number, broker in self.brokers.items() if broker.running]
        addresses = ",".join(self.brokers[number].advertised for number in running)
        wait_until_in_sync(addresses, running, timeout)

    # One broker

    def kill(self, broker: int) -> None:
        """kill -9."""
        self._broker(broker).kill()

    def stop(self, broker: int) -> int:
        """A clean stop: its partitions are led by others first. Its exit code."""
        return self._broker(broker).stop()

    def begin(self, broker: int) -> None:
        """Start a broker that is down, and do not wait for it."""
        self._broker(broker).begin()

    def restart(self, broker: int) -> None:
        """Start a broker on its data and address, stopped cleanly first if it runs; returns when it serves."""
        process = self._broker(broker)
        if process.running:
            process.stop()
        process.serve()

    def pause(self, broker: int) -> None:
        """SIGSTOP: connections stay open, and nothing answers."""
        self._broker(broker).pause()

    def resume(self, broker: int) -> None:
        self._broker(broker).resume()

    def cut(self, broker: int, *, store: bool = False) -> None:
        """Let nothing through between a broker and all others, and its ZooKeeper if asked to."""
        self.links.isolate(self._broker(broker).number, store=store)

    def heal(self) -> None:
        """Let everything through again."""
        self.links.heal()

    @property
    def links(self) -> Links:
        """The proxies before all brokers, for finer cuts."""
        if not self._with_links:
            raise BarnabasError(
                "Brokers are reached directly here: say Cluster(links=True) to cut their links."
            )
        return Links(self._proxies, self._pid_of, self._stores)

    def add(self, *, rack: str | None = None) -> int:
        """Start one more broker; its number."""
        number = max(self.brokers) + 1
        self._add(number, rack)
        self.brokers[number].serve()
        return number

    def _broker(self, number: int) -> BrokerProcess:
        if number not in self.brokers:
            raise BarnabasError(f"There is no broker {number}, only {', '.join(map(str, self.brokers))}.")
        return self.brokers[number]

    def _add(self, number: int, rack: str | None) -> None:
        own = {"zookeeper.connect": self._connect_of(number)} | (
            {"broker.rack": rack} if rack is not None else {}
        )
        port = self._ports.take()
        process = BrokerProcess(number, self.data, f"{LOOPBACK}:{port}", self._settings | own)
        if self._with_links and port is not None:
            self._proxies[number] = Proxy(port).start()
            process.advertised = self._proxies[number].address
        self.brokers[number] = process

    def _start_zookeepers(self) -> list[ZooKeeperProcess]:
        if self._zookeeper_count > 1:
            return start_ensemble(self.data / "zookeeper", self._zookeeper_count)
        return [start_zookeeper(self.data / "zookeeper") if self._own_zookeeper else shared_zookeeper()]

    def _connect_of(self, number: int) -> str:
        """Where a broker finds ZooKeeper: each through proxies of its own where links can be cut."""
        if not self._with_links:
            return self.zookeeper_connect
        ports = [int(each.address.rpartition(":")[2]) for each in self.zookeepers]
        self._stores[number] = [Proxy(port).start() for port in ports]
        return f"{','.join(each.address for each in self._stores[number])}/{self.data.name}"

    def _pid_of(self, number: int) -> int | None:
        process = self.brokers[number]
        return process.pid if process.running else None


_sharing = threading.Lock()
_shared: list[ZooKeeperProcess] = []


def shared_zookeeper() -> ZooKeeperProcess:
    """The ZooKeeper of this test run, started by the first cluster that needs it, or anew after a kill."""
    with _sharing:
        if not _shared:
            data = Path(tempfile.mkdtemp(prefix="barnabas-zookeeper-"))
            atexit.register(shutil.rmtree, data, ignore_errors=True)
            _shared.append(start_zookeeper(data))
        elif not _shared[0].serves():
            _shared[0].start().wait_ready()
        return _shared[0]
