"""Owns what all clusters on one machine share: settings for several brokers, starting, stopping, being in sync.

Used by `barnabas up --brokers` and `barnabas.testing.Cluster`.
"""

import threading
import time
from collections.abc import Collection, Iterable, Sequence

from barnabas.client.admin.admin import Admin
from barnabas.errors import BarnabasError, counted
from barnabas.processes.broker import START_S, BrokerProcess

_LOOK_S = 0.05
_ANSWER_MS = 5_000
_MOST_REPLICAS = 3


def replicated(brokers: int) -> dict[str, str]:
    """Settings that let a cluster of this size lose one broker, and neither records nor service where it has three."""
    replicas = min(brokers, _MOST_REPLICAS)
    in_sync = max(1, replicas - 1)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
    }


def start_all(brokers: Iterable[BrokerProcess], timeout: float = START_S) -> None:
    """Start brokers side by side, and come back when all of them serve."""
    deadline = time.monotonic() + timeout
    started = list(brokers)
    for broker in started:
        broker.begin()
    for broker in started:
        broker.wait_until_ready(deadline)


def stop_all(brokers: Sequence[BrokerProcess]) -> None:
    """Stop brokers in order, the youngest first: each hands its partitions to those that are left."""
    for broker in reversed(brokers):
        if broker.running:
            broker.stop()


def wait_until_in_sync(bootstrap: str, brokers: Collection[int], timeout: float, *, count: int = 1) -> None:
    """Come back when these brokers are there, and `count` at least, and each sees a leader and the full ISR of every
    partition."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while (reason := _out_of_sync(bootstrap, brokers, count)) is not None:
        if time.monotonic() > deadline:
            raise BarnabasError(f"The cluster is not in sync after {timeout:g} s: {reason}")
        pause.wait(_LOOK_S)


def _out_of_sync(bootstrap: str, brokers: Collection[int], count: int) -> str | None:
    """The first thing that is missing; None where nothing is."""
    try:
        with Admin(bootstrap, request_timeout_ms=_ANSWER_MS, client_id="barnabas-in-sync") as admin:
            known = {broker.id for broker in admin.describe_cluster().brokers}
            if missing := sorted(set(brokers) - known):
                return f"Broker {missing[0]} is not in the cluster."
            if len(known) < count:
                return f"The cluster has {counted(len(known), 'broker')}, not {count}."
            for broker in known:
                if troubles := admin.view(broker).troubles():
                    return troubles[0]
    except BarnabasError as error:
        return str(error)
    return None
