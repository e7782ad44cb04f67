"""The bench of clusters: what it asks, what it reads of a broker's answers, and how it measures an outage."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

# The bench is a package at the repository's root and is not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.measure import Case, Size, Wanted, compares_brokers
from bench.wire import Partitions
from bench.workloads import ALL, cluster

from barnabas.wire.frames import encode_response
from barnabas.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from bench import outage, wire
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.process import BrokerProcess


def _partition(index: int, leader: int, isr: list[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(0, index, leader, 0, [1, 2, 3], isr, [])


def test_a_brokers_answer_tells_which_partitions_are_well() -> None:
    brokers = [MetadataResponseBroker(1, "localhost", 9092, None)]
    partitions = [_partition(0, 1, [1, 2, 3]), _partition(1, 2, [2, 1]), _partition(2, -1, [])]
    response = MetadataResponse(0, brokers, None, 1, [MetadataResponseTopic(0, "t", partitions=partitions)])
    frame = b"".join(bytes(chunk) for chunk in encode_response(response, 1, 1))  # type: ignore[arg-type]
    seen = wire.partitions_of(frame[wire.LENGTH_BYTES :])
    assert seen == Partitions(3, 2, 1)
    assert not seen.are_well
    assert not Partitions(0, 0, 0).are_well
    assert Partitions(2, 2, 2).are_well


def test_what_the_issue_asks_of_a_cluster_is_what_is_wanted() -> None:
    asked = {case.name: case for case in cluster.cases(Size.DEFAULT)}

    def bound(metric: str, case: Case) -> Wanted | None:
        return cluster.wanted(metric, case, [])

    assert bound("produce_mb_s", asked["1 KiB, 4 partitions"]) == Wanted(2.0, at_least=True)
    assert bound("cpu_s_gb", asked["1 KiB, 64 partitions"]) == Wanted(0.3, at_least=False)
    assert bound("silence_s", asked["kill -9 of a leader"]) == Wanted(0.2, at_least=False)
    assert bound("silence_s", asked["clean stop of a leader"]) == Wanted(0.5, at_least=False)
    assert bound("restart_s", asked["2,000 partitions, restart of all"]) == Wanted(1.0, at_least=False)


def test_the_cluster_is_compared_with_kafkas() -> None:
    (found,) = (workload for workload in ALL if workload.NAME == "cluster")
    assert compares_brokers(found)


@pytest.mark.slow
def test_an_outage_is_as_long_as_nothing_was_acknowledged(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()
    with ConfluentAdapter(broker.bootstrap) as admin:
        admin.create_topic("outage", 1, {})
    down_s = 0.0

    def end_and_start() -> None:
        nonlocal down_s
        broker.kill()
        began = time.monotonic()
        broker.start()
        down_s = time.monotonic() - began

    # Ready is said a moment after the first request is served.
    assert outage.run(broker.bootstrap, "outage", end_and_start) > down_s / 2 > 0
