"""Owns a cluster of three brokers that the bench started: Apache Kafka's with KRaft, or ours with ZooKeeper.

Called by the workload cluster. To everything that measures one broker a cluster is a server, too: its address is that
of broker 1, its cost that of all processes. Single brokers can be killed, stopped and started again.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from bench import barnabas_server, kafka, wire
from bench.processes import Cost, cost
from bench.server import BrokerFailedError, Server, begin, end, free_port, last_words, until_serving

BROKERS = 3
WELL_LIMIT_S = 120.0
LOOK_EVERY_S = 0.01
# As both brokers' own documentation has it for three brokers that lose nothing.
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
}
KAFKAS = {
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    # 9 s by default: 6 s is what a session took with ZooKeeper, and flatters Kafka.
    "broker.session.timeout.ms": "6000",
}


class Node:
    """One broker: how it is started, and the process that it is now."""

    def __init__(self, number: int, name: str, command: Sequence[str], port: int, directory: Path) -> None:
        self.number, self.name, self.port = number, name, port
        self._command = command
        self.log = directory / "server.log"
        self.server: Server | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = 0.0

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def begin(self) -> None:
        self._begun = time.monotonic()
        self._process = begin(self._command, self.log)

    def wait(self) -> Server:
        assert self._process is not None
        self.server = until_serving(self.name, self._process, self._begun, self.port, self.log)
        return self.server

    def kill(self) -> None:
        if self._process is not None:
            end(self._process)

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
        self.kill()

    def partitions(self, topic: str) -> wire.Partitions:
        """What this broker says of a topic; nothing, while it does not answer."""
        try:
            with socket.create_connection((Server.host, self.port), timeout=10) as sock:
                return wire.partitions_of(wire.ask(sock, wire.topic_request(topic)))
        except OSError:
            return wire.Partitions(0, 0, 0)


class ClusterServer(Server):
    """All brokers as one server; `store` is the process that keeps our metadata."""

    replicas = BROKERS

    def __init__(
        self, name: str, nodes: Sequence[Node], store: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.nodes, self._store = list(nodes), store
        self.turns = cycle(self.nodes)
        """Each outage takes the next broker for its leader: the controller is among them every third time."""
        try:
            for node in nodes:
                node.begin()
            first, *_ = [node.wait() for node in nodes]
        except BaseException:
            self.stop()
            raise
        super().__init__(name, first.port, first.process, first.log, first.first_answer_s, first.serving_s)

    @property
    def is_running(self) -> bool:
        return all(node.pid is not None for node in self.nodes)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self.host}:{node.port}" for node in self.nodes)

    def cost(self) -> Cost:
        """Of all brokers and what keeps their metadata."""
        return _together([self.brokers_cost(), *([] if self._store is None else [cost(self._store.pid)])])

    def brokers_cost(self) -> Cost:
        return _together([cost(node.pid) for node in self.nodes if node.pid is not None])

    def start(self, nodes: Sequence[Node]) -> None:
        """Start brokers that are down, side by side; returns when they serve."""
        for node in nodes:
            node.begin()
        for node in nodes:
            node.wait()

    def until_well(self, topic: str) -> None:
        """Until every broker says that each partition of a topic has a leader and its full ISR."""
        deadline = time.monotonic() + WELL_LIMIT_S
        for node in self.nodes:
            while not (seen := node.partitions(topic)).are_well:
                if time.monotonic() > deadline:
                    raise BrokerFailedError(
                        f"{node.name}: {seen.led} of {seen.all} partitions have a leader and {seen.in_sync} their "
                        f"full ISR after {WELL_LIMIT_S:.0f} s; it said: {last_words(node.log)}"
                    )
                time.sleep(LOOK_EVERY_S)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        if self._store is not None and self._store.poll() is None:
            self._store.terminate()
            try:
                self._store.wait(10)
            except subprocess.TimeoutExpired:
                end(self._store)


def _together(costs: Sequence[Cost]) -> Cost:
    threads = {thread: used for each in costs for thread, used in each.threads.items()}
    return Cost(sum(each.cpu_s for each in costs), threads, sum(each.rss_bytes for each in costs))


def start_kafka(directory: Path) -> ClusterServer:
    """Three nodes, each broker and controller."""
    controllers = [free_port() for _ in range(BROKERS)]
    voters = ",".join(f"{number}@{Server.host}:{port}" for number, port in enumerate(controllers, 1))
    cluster = kafka.new_cluster_id()
    nodes = []
    for number, controller in enumerate(controllers, 1):
        port, home = free_port(), directory / f"kafka-{number}"
        own = {"node.id": str(number), "controller.quorum.voters": voters}
        command = kafka.prepare(home, port, controller, {**SETTINGS, **KAFKAS, **own}, cluster)
        nodes.append(Node(number, f"Kafka's node {number}", command, port, home))
    return ClusterServer("kafka", nodes)


def start_ours(directory: Path) -> ClusterServer:
    """As `barnabas up --brokers 3` starts them: a real ZooKeeper and three brokers with our defaults."""
    program = barnabas_server.command()
    barnabas_server.compile_sources()
    directory.mkdir(parents=True, exist_ok=True)
    store_port = free_port()
    where = ("--data", str(directory / "zookeeper"), "--port", str(store_port))
    store = begin((*program, "zookeeper", *where), directory / "zookeeper.log")
    nodes = []
    for number in range(1, BROKERS + 1):
        port, home = free_port(), directory / f"barnabas-{number}"
        home.mkdir()
        own = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{Server.host}:{port}",
            "log.dirs": str(home / "data"),
            "zookeeper.connect": f"{Server.host}:{store_port}",
        }
        properties = home / "server.properties"
        properties.write_text(_properties({**SETTINGS, **own}))
        nodes.append(
            Node(
                number, f"our broker {number}", (*program, "broker", "--config", str(properties)), port, home
            )
        )
    try:
        _until_ready(store, directory / "zookeeper.log")
    except BaseException:
        end(store)
        raise
    return ClusterServer("barnabas", nodes, store)


def _properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _until_ready(store: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + WELL_LIMIT_S
    while "ready" not in log.read_text(errors="replace"):
        if store.poll() is not None or time.monotonic() > deadline:
            raise BrokerFailedError(f"ZooKeeper did not start: {last_words(log)}")
        time.sleep(LOOK_EVERY_S)


START: Mapping[str, Callable[[Path], ClusterServer]] = {"Apache Kafka": start_kafka, "Barnabas": start_ours}
