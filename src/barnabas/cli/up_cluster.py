"""`barnabas up --brokers N`: ZooKeeper and N brokers as processes of this machine, until Ctrl-C.

A process that dies is told of and started again, later each time. Ctrl-C and SIGTERM stop the brokers one by one, so
that each hands over what it leads, and ZooKeeper last. The folder keeps ids, ports and data for the next start.
"""

import fcntl
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from barnabas.cli.exits import WrongUsage
from barnabas.errors import BarnabasError
from barnabas.processes.broker import BrokerProcess, Ports, address_before, setting_before
from barnabas.processes.cluster import replicated, start_all, stop_all, wait_until_in_sync
from barnabas.processes.zookeeper import ZooKeeperProcess

IN_SYNC_S = 60.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""A process that ran for this long and dies has the shortest pause again."""
SECOND_THOUGHT_S = 1.0
"""A signal this soon after the first is the same one: `timeout` sends it to a process and to its group."""

_NEXT_PORTS = 100
_OWN = (
    "broker.id",
    "node.id",
    "listeners",
    "advertised.listeners",
    "log.dirs",
    "log.dir",
    "zookeeper.connect",
)
"""Settings that differ from broker to broker: they follow from --listen and --data."""


def up_cluster(
    count: int, listen: str, data: str, settings: Mapping[str, str], metrics: str, log_format: str
) -> None:
    """Run a cluster in a folder until Ctrl-C or SIGTERM."""
    for name in _OWN:
        if name in settings:
            raise WrongUsage(
                f"{name} differs from broker to broker: here it follows from --listen and --data."
            )
    host, port = _host_and_port(listen, "--listen")
    home = Path(data)
    with _locked(home), closing(Ports()) as ports:
        addresses = _addresses(home, host, port, count, ports)
        zookeeper = ZooKeeperProcess(home / "zookeeper", _zookeeper_port(home, ports))
        shared = {**replicated(count), **settings, "zookeeper.connect": zookeeper.address}
        brokers = []
        for number, address in enumerate(addresses, 1):
            own = {"metrics.listen": _further(metrics, number - 1)} if metrics else {}
            broker = BrokerProcess(number, home, address, shared | own, orphaned=signal.SIGTERM)
            broker.options = ["--log-format", log_format]
            brokers.append(broker)
        _Supervisor(zookeeper, brokers).run()


class _Stop(Exception):
    """A signal asks to stop."""


@dataclass
class _Watched:
    """Mutable: a process that is started again whenever it ends."""

    name: str
    log: Path
    start: Callable[[], object]
    wait: Callable[[], str]
    """Comes back when it has ended, and says how."""
    born: float = 0.0
    pause_s: float = 0.0

    def next_pause(self, now: float) -> float:
        if now - self.born > STEADY_S:
            self.pause_s = 0.0
        self.pause_s = min(max(FIRST_PAUSE_S, 2 * self.pause_s), LONGEST_PAUSE_S)
        return self.pause_s


class _Supervisor:
    """Mutable: the processes, and what is to be done about them next."""

    def __init__(self, zookeeper: ZooKeeperProcess, brokers: Sequence[BrokerProcess]) -> None:
        self._zookeeper = zookeeper
        self._brokers = brokers
        self._steps: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping_since: float | None = None

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._interrupt)
        try:
            self._start()
            while True:
                self._steps.get()()
        except _Stop:
            typer.echo("stopping")
        finally:
            self._stopping_since = self._stopping_since or time.monotonic()
            stop_all(self._brokers)
            self._zookeeper.stop()
        typer.echo("stopped")

    def _interrupt(self, *_: object) -> None:
        """The first signal stops in order; another one, later, ends the wait for brokers that do not stop."""
        now = time.monotonic()
        if self._stopping_since is None:
            self._stopping_since = now
            raise _Stop
        if now - self._stopping_since > SECOND_THOUGHT_S:
            for broker in self._brokers:
                broker.signal(signal.SIGKILL)

    def _start(self) -> None:
        self._zookeeper.start().wait_ready()
        folder = self._brokers[0].output.parent
        typer.echo(f"ZooKeeper serves at {self._zookeeper.address}; broker N logs to {folder}/broker-N.log")
        self._watch(_Watched("ZooKeeper", self._zookeeper.log, self._zookeeper.start, self._zookeeper_ended))
        start_all(self._brokers)
        for broker in self._brokers:
            self._watch(_Watched(broker.name, broker.output, broker.begin, broker.wait_and_tell))
        bootstrap = ",".join(map(_reachable, self._brokers))
        wait_until_in_sync(bootstrap, [broker.number for broker in self._brokers], IN_SYNC_S)
        typer.echo(f"ready on {bootstrap}")

    def _zookeeper_ended(self) -> str:
        try:
            self._zookeeper.wait()
        except BarnabasError as how:
            return str(how)
        return "stopped"

    def _watch(self, watched: _Watched) -> None:
        watched.born = time.monotonic()

        def look() -> None:
            how = watched.wait()
            self._steps.put(lambda: self._ended(watched, how))

        threading.Thread(target=look, name=f"watch-{watched.name}", daemon=True).start()

    def _ended(self, watched: _Watched, how: str) -> None:
        pause = watched.next_pause(time.monotonic())
        typer.echo(f"{watched.name} has ended ({how}): it starts again in {pause:g} s; see {watched.log}")
        timer = threading.Timer(pause, self._steps.put, [lambda: self._start_again(watched)])
        timer.daemon = True
        timer.start()

    def _start_again(self, watched: _Watched) -> None:
        try:
            watched.start()
        except (BarnabasError, OSError) as error:
            self._ended(watched, str(error))
        else:
            self._watch(watched)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Have the folder for ourselves: a second cluster in it would be the first one's undoing."""
    if (home / "meta.properties").exists():
        raise BarnabasError(f"{home} has the data of a single broker: give another folder with --data.")
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BarnabasError(f"{home} is in use by another `barnabas up --brokers`.") from None
        yield


def _addresses(home: Path, host: str, port: int, count: int, ports: Ports) -> list[str]:
    """Where each broker listens: the first as told, the others where they did before, or on the next free ports."""
    found: list[str] = []
    last = port
    for number in range(1, count + 1):
        before = _port_before(home, host, number)
        if number == 1 and port:
            taken = ports.take(host, port)
            if taken is None:
                raise BarnabasError(
                    f"{host}:{port} is taken by another program, or not an address of this machine."
                )
        else:
            taken = (before and ports.take(host, before)) or _next_free(host, last, ports)
        last = taken
        found.append(f"[{host}]:{taken}" if ":" in host else f"{host}:{taken}")
    return found


def _port_before(home: Path, host: str, number: int) -> int:
    address = address_before(home, number)
    if address is None:
        return 0
    known, port = _host_and_port(address, f"{home}: listeners")
    return port if known == host else 0


def _next_free(host: str, last: int, ports: Ports) -> int:
    """The next port that is free; any, where the first broker's is any."""
    wanted = range(last + 1, min(last + _NEXT_PORTS, 65536)) if last else ()
    for port in (*wanted, 0):
        taken = ports.take(host, port)
        if taken is not None:
            return taken
    raise BarnabasError(f"There is no free port at {host}: is it an address of this machine?")


def _zookeeper_port(home: Path, ports: Ports) -> int:
    before = setting_before(home, 1, "zookeeper.connect")
    port = _host_and_port(before, "zookeeper.connect")[1] if before else 0
    return (port and ports.take(port=port)) or ports.take() or 0


def _host_and_port(text: str, option: str) -> tuple[str, int]:
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise WrongUsage(f"{option} takes HOST:PORT, not {text!r}.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _further(metrics: str, steps: int) -> str:
    """The same address some ports on: each broker serves its own metrics."""
    host, port = _host_and_port(metrics, "--metrics")
    return f"{host}:{port + steps if port else 0}"


def _reachable(broker: BrokerProcess) -> str:
    host, port = _host_and_port(broker.address, "--listen")
    return f"{socket.gethostname()}:{port}" if host in ("", "0.0.0.0", "::") else broker.address
