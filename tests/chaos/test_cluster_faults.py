"""A cluster under one fault after another: no promise is broken, and writes go on after each of them.

Three real brokers, replication 3, min.insync.replicas 2; writers and readers of librdkafka and of ours.
`make soak-cluster` does the same for hours.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from barnabas.testing import Cluster, faults
from barnabas.testing.faults import Fault
from barnabas.testing.full_disks import FullDisks
from barnabas.testing.preloaded import can_be_preloaded
from barnabas.testing.wall_clocks import WallClocks
from tests.chaos.rounds import SETTINGS, Held, Trial

pytestmark = [pytest.mark.slow(seconds=90), pytest.mark.java, pytest.mark.timeout(600)]

TOPIC = "faulty"
LEADER, FOLLOWER = faults.leader(TOPIC), faults.follower(TOPIC)
PAUSE = faults.pause(LEADER)
SHORT, LONG = Held(0.5), Held(4.0)
"""A long one outlasts sessions and the time after which a silent replica leaves the ISR."""


class Preloads(NamedTuple):
    """What brokers are started with, so that it can be changed under them."""

    clocks: WallClocks
    disks: FullDisks


@pytest.fixture
def preloads() -> Iterator[Preloads | None]:
    if not can_be_preloaded():
        yield None
        return
    with WallClocks() as clocks, FullDisks() as disks:
        yield Preloads(clocks, disks)


def _rounds(preloads: Preloads | None) -> list[tuple[Fault, Held]]:
    """At least ten, in an order in which each meets what the one before left."""
    # Not further back than message.timestamp.after.max.ms: records of the right time would be refused as of the future.
    preloaded = (
        []
        if preloads is None
        else [
            *((faults.fill_disk(each, preloads.disks), SHORT) for each in (FOLLOWER, LEADER)),
            *((faults.jump_clock(LEADER, preloads.clocks, by), SHORT) for by in (-1_800, 86_400)),
        ]
    )
    return [
        (faults.kill(LEADER), SHORT),
        (faults.kill(FOLLOWER), SHORT),
        (faults.kill(faults.controller()), SHORT),
        (PAUSE, LONG),
        (faults.cut_off(LEADER, store=True), LONG),
        (faults.kill_zookeeper(), SHORT),
        (faults.kill(faults.all_brokers()), SHORT),
        (faults.wipe(FOLLOWER), SHORT),
        *preloaded,
        (faults.look_dead(LEADER), SHORT),
        (faults.rolling_restart(), SHORT),
    ]


def test_no_fault_costs_a_record_and_writes_go_on_after_each(preloads: Preloads | None) -> None:
    with Cluster(3, SETTINGS, links=True, own_zookeeper=True) as cluster, Trial(cluster, TOPIC) as trial:
        for fault, held in _rounds(preloads):
            lives = _lives_without_a_start(cluster)
            trial.strike(fault, held)
            if fault.name == PAUSE.name:
                assert _lives_without_a_start(cluster) > lives, "the pause outlasted the session"
        verdict = trial.finish()
    assert not verdict.findings, str(verdict)


def _lives_without_a_start(cluster: Cluster) -> int:
    """How often the session of a broker has ended while its process lived."""
    return sum(broker.output.read_text().count("another life") for broker in cluster.brokers.values())


def test_an_ensemble_of_zookeepers_loses_its_leader_and_nothing_else() -> None:
    with Cluster(3, SETTINGS, zookeepers=3) as cluster, Trial(cluster, TOPIC) as trial:
        trial.strike(faults.kill_zookeepers_leader(), LONG)
        trial.strike(faults.kill(LEADER), SHORT)
        verdict = trial.finish()
    assert not verdict.findings, str(verdict)
