"""Owns what suites of clients talk to: one broker inside the process, or a cluster of processes.

BARNABAS_TEST_BROKERS=3 gives every suite that only needs an address three brokers, with three replicas of each topic
(`make test-cluster`). Tests that look into a broker, or restart one, say `Broker` themselves and keep it.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from barnabas.testing import Broker, Cluster

COUNT = int(os.environ.get("BARNABAS_TEST_BROKERS", "1"))


class Brokers(Protocol):
    """One broker or several, found at their addresses."""

    @property
    def bootstrap(self) -> str: ...


@contextmanager
def serving(settings: Mapping[str, str] | None = None, count: int = COUNT) -> Iterator[Brokers]:
    """This many brokers, empty at first, and what they wrote to their logs held to be free of tracebacks."""
    if count == 1:
        with Broker(settings) as broker:
            yield broker
        return
    with Cluster(count, settings) as cluster:
        yield cluster
        hold_to_no_traceback(cluster)


def hold_to_no_traceback(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        told = broker.output.read_text(errors="replace")
        at = told.find("Traceback")
        assert at < 0, f"broker {broker.number}: {told[max(0, at - 1000) : at + 9000]}"
