"""Owns how a cluster is tried: faults strike one after the other while clients write and read, and each is told of.

Called by test_cluster_faults and by the soak. A round: all is well, a fault strikes and lasts, it is mended, writes
succeed again, all replicas are in sync again; each with a deadline. The history of all rounds is judged at the end.
"""

import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

from barnabas import Admin
from barnabas.testing import Cluster
from barnabas.testing.faults import Fault
from barnabas.testing.history import Verdict
from tests import segments
from tests.chaos.clients import Clients
from tests.deadline import eventually

PARTITIONS = 3
SETTINGS: dict[str, str | float] = {
    "zookeeper.session.timeout.ms": 2_000,
    "replica.lag.time.max.ms": 2_000,
    "auto.create.topics.enable": "false",
    # Also segments that roll, and checkpoints, meet the faults.
    "log.segment.bytes": 1 << 20,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "replica.high.watermark.checkpoint.interval.ms": 500,
}
"""Times short enough that a round takes seconds: a broker that is silent for two of them is given up."""

RECOVERED_S = 120.0
FINISHED_S = 120.0


@dataclass(frozen=True, slots=True)
class Held:
    """How long a fault lasts: at least this, and until writes succeed under it where they should."""

    seconds: float
    writes_within_s: float = 90.0


class Round(NamedTuple):
    """What a fault cost, in seconds."""

    fault: str
    silence_s: float
    """The longest time in which a writer was told of no acknowledgement."""
    writes_s: float
    """From the mending to the first acknowledgements of all writers in all partitions."""
    in_sync_s: float
    """From the mending to all replicas in sync."""

    def __str__(self) -> str:
        times = f"{self.silence_s:6.2f} {self.writes_s:6.2f} {self.in_sync_s:6.2f}"
        return f"{times}  {self.fault}"


class Trial:
    """A topic of a cluster, its clients, and the rounds that they went through."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic(
                topic,
                partitions=PARTITIONS,
                replication_factor=3,
                configs={"min.insync.replicas": "2", "retention.ms": "-1"},
            )
        cluster.wait_until_in_sync(RECOVERED_S)
        self.clients = Clients(cluster.bootstrap, topic, PARTITIONS)
        self.rounds: list[Round] = []

    def __enter__(self) -> "Trial":
        self.clients.__enter__()
        return self

    def __exit__(self, *given: object) -> None:
        self.clients.__exit__(None, None, None)

    def strike(self, fault: Fault, held: Held) -> Round:
        """One round. The cluster is well before it and after it."""
        self.clients.wait_for_writes(RECOVERED_S)
        for writer in self.clients.writers:
            writer.listen_anew()
        with fault.on(self.cluster):
            threading.Event().wait(held.seconds)
            if fault.leaves_quorum:
                self.clients.wait_for_writes(held.writes_within_s)
        mended = time.monotonic()
        self.clients.wait_for_writes(RECOVERED_S)
        wrote = time.monotonic()
        self.cluster.wait_until_in_sync(RECOVERED_S)
        silence_s = max(writer.silence_s() for writer in self.clients.writers)
        done = Round(fault.name, silence_s, wrote - mended, time.monotonic() - mended)
        self.rounds.append(done)
        return done

    def finish(self) -> Verdict:
        """Stop the clients and judge what they lived through; then compare the replicas' files."""
        verdict = self.clients.finish(FINISHED_S).verdict()
        eventually(self._replicas_are_equal, "all replicas to have the same bytes", RECOVERED_S)
        return verdict

    def _replicas_are_equal(self) -> bool:
        """Writers are done and all are in sync: every replica has the same batches, and the same epochs in them."""
        stored = []
        for broker in self.cluster.brokers.values():
            names = [f"{self.topic}-{number}" for number in range(PARTITIONS)]
            folders = [segments.partition(broker.data, name) for name in names]
            stored.append(
                [[batch for _, batch in segments.batches(folder, growing=True)] for folder in folders]
            )
        return all(each == stored[0] for each in stored[1:])
