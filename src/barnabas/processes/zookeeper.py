"""Owns ZooKeeper as a process of this machine: where its jars are, its settings, how it starts, stops and dies.

Called by `barnabas zookeeper`, `barnabas up --brokers`, `barnabas.testing` and tests. The jars are those of
ZOOKEEPER_HOME, of PySpark, or of Debian's package, in this order; Java 11 or newer runs them. Nothing is left behind
when this process ends, however it ends. A start that fails is one sentence, after at most `START_S`.

Measured on 2 cores: it serves 0.4 to 0.7 s after the start (1.2 s with all of PySpark's jars in the class path) and
takes 60 MB; the heap grows to 128 MB at most, enough for 100,000 partitions.
"""

import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from barnabas.errors import BarnabasError, reason_of
from barnabas.processes.child import spawn

START_S = 60.0
STOP_S = 10.0
HOST = "127.0.0.1"
LOG_NAME = "zookeeper.log"
DEBIANS_FOLDER = "/usr/share/java"
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

_JAVA_OPTIONS = (
    "-Xmx128m",
    "-Xms8m",
    "-Xss256k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    # What logs depends on where the jars are from: PySpark, Debian; the logback of ZooKeeper itself wants a file.
    "-Dlog4j2.level=WARN",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dzookeeper.jmx.log4j.disable=true",
)

_LOGBACK_NAME = "logback.xml"
_LOGBACK = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""
"""Without it a ZooKeeper of ZOOKEEPER_HOME logs several lines for each request."""

_IS_REASON = re.compile(r"(Caused by: )?[\w.$]+(Exception|Error): ")

# Of the 250 jars of PySpark those that ZooKeeper loads: opening all of them would triple the time of a start.
_NEEDED = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "netty-handler-*.jar",
    "netty-common-*.jar",
    "netty-buffer-*.jar",
    "netty-codec-*.jar",
    "netty-resolver-*.jar",
    "netty-transport-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "commons-io-*.jar",
)
_DEBIANS = (
    "zookeeper.jar",
    "zookeeper-jute.jar",
    "slf4j-api.jar",
    "slf4j-simple.jar",
    "netty*.jar",
    "metrics-core*.jar",
    "snappy-java.jar",
    "commons-io.jar",
    "commons-cli.jar",
)


class EnsembleServer(NamedTuple):
    """One server of an ensemble: its number, and the ports at which the servers talk among themselves."""

    number: int
    quorum_port: int
    election_port: int


class ZooKeeperProcess:
    """Mutable: one ZooKeeper on a folder and a port, started and ended any number of times."""

    def __init__(
        self,
        data: Path,
        port: int = 0,
        host: str = HOST,
        member: EnsembleServer | None = None,
        ensemble: Sequence[EnsembleServer] = (),
    ) -> None:
        self._data = data
        self._host = host
        self._port = port or free_ports(1)[0]
        self._member = member
        self._ensemble = ensemble
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def log(self) -> Path:
        """The file that has what it says."""
        return self._data / LOG_NAME

    @property
    def pid(self) -> int:
        """The number of the Java process; 0 where none runs."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> "ZooKeeperProcess":
        """Start it and return at once; `wait_ready` waits until it serves."""
        java, jars = _java(), _class_path()
        settings = self._configure()
        logs = f"-Dlogback.configurationFile={settings.with_name(_LOGBACK_NAME)}"
        command = [java, *_JAVA_OPTIONS, logs, "-cp", jars, MAIN_CLASS, str(settings)]
        self._check_port()
        with open(self._data / LOG_NAME, "ab") as log:
            self._process = spawn(command, log.fileno(), log.fileno())
        atexit.register(self.kill)
        return self

    def wait_ready(self, within_s: float = START_S) -> "ZooKeeperProcess":
        """Wait until it serves. One that ended instead is told of in a sentence."""
        deadline = time.monotonic() + within_s
        while not self.serves():
            process = self._process
            if process is None or process.poll() is not None:
                self._forget()
                raise BarnabasError(f"ZooKeeper ended at once: {self._last_words()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BarnabasError(f"ZooKeeper at {self.address} did not serve within {within_s:.0f} s.")
            time.sleep(0.01)
        return self

    def serves(self) -> bool:
        """Whether it answers, and is part of a quorum where it belongs to one."""
        return self.mode() is not None

    def mode(self) -> str | None:
        """What it says that it is: standalone, leader, follower or read-only; None where it does not serve."""
        with suppress(OSError), socket.create_connection((self._host, self._port), timeout=1.0) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while some := connection.recv(4096):
                answer += some
            found = re.search(rb"^Mode: ([\w-]+)", answer, re.MULTILINE)
            return found[1].decode() if found else None
        return None

    def wait(self) -> None:
        """Wait until it ends by itself, which is a failure: the sentence says what its log has."""
        if self._process is not None:
            self._process.wait()
            self._forget()
            raise BarnabasError(f"ZooKeeper at {self.address} has ended: {self._last_words()}")

    def stop(self) -> None:
        """End it in order; what it has answered lasts."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would; what it has answered lasts all the same."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it stand still: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._signal(number)
        self._signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forget()

    def _forget(self) -> None:
        self._process = None
        atexit.unregister(self.kill)

    def _check_port(self) -> None:
        """Java would take half a second to find out, and a page to say so."""
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self._host, self._port))
                probe.listen(1)
        except OSError as error:
            raise BarnabasError(f"ZooKeeper cannot listen at {self.address}: {reason_of(error)}.") from None

    def _configure(self) -> Path:
        """Write the settings; the file's path."""
        lines = [
            f"dataDir={self._data.absolute()}",
            f"clientPort={self._port}",
            f"clientPortAddress={self._host}",
            "tickTime=500",
            "minSessionTimeout=500",
            "maxSessionTimeout=120000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "autopurge.purgeInterval=1",
            "4lw.commands.whitelist=srvr,ruok,mntr",
        ]
        if self._member is not None:
            lines += ["initLimit=20", "syncLimit=10"]
            lines += [
                f"server.{one.number}={HOST}:{one.quorum_port}:{one.election_port}" for one in self._ensemble
            ]
        path = self._data.absolute() / "zoo.cfg"
        try:
            self._data.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join([*lines, ""]))
            path.with_name(_LOGBACK_NAME).write_text(_LOGBACK)
            if self._member is not None:
                (self._data / "myid").write_text(f"{self._member.number}\n")
        except OSError as error:
            raise BarnabasError(
                f"ZooKeeper cannot keep its data in {self._data}: {reason_of(error)}."
            ) from None
        return path

    def _last_words(self) -> str:
        """What its log says that a person can use."""
        path = self._data / LOG_NAME
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        told = [line for line in lines if _IS_REASON.match(line)]
        return f"{told[-1].strip()} ({path} has more)" if told else f"{path} may say why."


def start_zookeeper(data: Path, port: int = 0) -> ZooKeeperProcess:
    """A ZooKeeper that keeps its data in a folder and serves; port 0 takes a free one."""
    return ZooKeeperProcess(data, port).start().wait_ready()


def start_ensemble(data: Path, servers: int = 3) -> list[ZooKeeperProcess]:
    """Several ZooKeepers that keep the same data, each in a folder of its own, and agree by majority."""
    ports = free_ports(2 * servers)
    members = [EnsembleServer(number + 1, *ports[2 * number : 2 * number + 2]) for number in range(servers)]
    processes = [ZooKeeperProcess(data / str(one.number), 0, HOST, one, members) for one in members]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.wait_ready()
    except BarnabasError:
        for process in processes:
            process.kill()
        raise
    return processes


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens at now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _java() -> str:
    home = os.environ.get("JAVA_HOME", "")
    for found in (
        shutil.which("java", path=os.path.join(home, "bin")) if home else None,
        shutil.which("java"),
    ):
        if found is not None:
            return found
    raise BarnabasError(
        "ZooKeeper needs Java, and there is none: install Java 17 (for example openjdk-17-jre-headless), "
        "or set JAVA_HOME."
    )


def _class_path() -> str:
    """The jars to run; a sentence where there are none."""
    home = os.environ.get("ZOOKEEPER_HOME")
    if home:
        jars = glob(os.path.join(home, "lib", "*.jar")) + glob(os.path.join(home, "zookeeper*.jar"))
        if not any("zookeeper" in os.path.basename(jar) for jar in jars):
            raise BarnabasError(f"ZOOKEEPER_HOME is {home}, and there is no lib/zookeeper-*.jar below it.")
        return os.pathsep.join(sorted(jars))
    for folder, names in ((_pyspark_jars(), _NEEDED), (DEBIANS_FOLDER, _DEBIANS)):
        found = [jar for name in names for jar in sorted(glob(os.path.join(folder, name)))] if folder else []
        if found and os.path.basename(found[0]).startswith("zookeeper"):
            return os.pathsep.join(found)
    raise BarnabasError(
        "The jars of ZooKeeper are not here: install PySpark (pip install 'barnabas[spark]') or Debian's package "
        "zookeeper, or set ZOOKEEPER_HOME."
    )


def _pyspark_jars() -> str | None:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    return os.path.join(spec.submodule_search_locations[0], "jars")
