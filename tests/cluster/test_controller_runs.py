"""The whole pure controller under random deaths, starts, power cuts, ISR changes, reassignments and failovers."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.cluster import deciding, elections, isr, reactions, reassignment
from barnabas.cluster.elections import Policy
from barnabas.cluster.image import PartitionImage, TopicImage
from tests.cluster.controller_world import World

SEEDS = 500
PLANTED_SEEDS = 4000
"""Within which a plant has to be found. The one that found it is tried first: a change of the draws costs a search."""
STEPS = 150


def run_seeds(seeds: Iterable[int]) -> None:
    for seed in seeds:
        try:
            World(seed).run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_leaders_have_all_that_is_committed_whatever_happens() -> None:
    run_seeds(range(SEEDS))


def test_the_same_seed_is_the_same_run() -> None:
    one, other = World(7), World(7)
    one.run(STEPS)
    other.run(STEPS)
    assert one.image.topics == other.image.topics
    assert one.truth == other.truth


# Plants: each of these bugs is found by the runs above.


def _silently_unclean(plant: pytest.MonkeyPatch) -> None:
    """Any live replica is elected."""

    def policy(topic: TopicImage, defaults: Any) -> Policy:
        return Policy(2, allows_unclean=True)

    unclean = elections.unclean
    plant.setattr(deciding, "policy_of", policy)
    plant.setattr(elections, "unclean", lambda *given: unclean(*given)._replace(note=""))


def _power_cuts_ignored(plant: pytest.MonkeyPatch) -> None:
    """A broker back after a power cut is trusted like any other."""
    plant.setattr(elections, "_trusted", lambda partition, electorate: (partition.isr, partition.elr))


def _elr_for_ever(plant: pytest.MonkeyPatch) -> None:
    """A replica that has left the ISR stays eligible, though records are committed without it."""

    def beside(partition: PartitionImage, isr: tuple[int, ...], *_: Any) -> tuple[int, ...]:
        left = (*partition.isr, *partition.elr)
        return tuple(replica for replica in partition.replicas if replica in left and replica not in isr)

    for module in (elections, isr):
        plant.setattr(module, "eligible_beside", beside)


def _stale_partition_epoch(plant: pytest.MonkeyPatch) -> None:
    """An ISR is granted to a leader that does not know the newest one."""
    plant.setattr(isr, "_check_epochs", lambda *_: None)


def _stale_broker_epoch(plant: pytest.MonkeyPatch) -> None:
    """A replica joins that has begun another life since its leader saw it catch up."""
    plant.setattr(isr, "_check_members", lambda *_: None)


def _replicas_go_too_early(plant: pytest.MonkeyPatch) -> None:
    """A reassignment ends before the new replicas are in sync."""
    begin = reassignment.begin

    def at_once(partition: PartitionImage, target: Any) -> PartitionImage:
        begun = begin(partition, target)
        return reassignment._reduced(replace(begun, isr=begun.replicas), tuple(target))

    plant.setattr(reassignment, "begin", at_once)
    plant.setattr(reassignment, "advanced", elections.settled)


def _deaths_overlooked(plant: pytest.MonkeyPatch) -> None:
    """What happened while there was no controller is not looked at by the next."""
    plant.setattr(reactions, "every_partition", lambda image: ())


FOUND_BY: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    _silently_unclean: 8,
    _power_cuts_ignored: 51,
    _elr_for_ever: 9,
    _stale_partition_epoch: 638,
    _stale_broker_epoch: 11,
    _replicas_go_too_early: 6,
    _deaths_overlooked: 4,
}


@pytest.mark.parametrize("plant", FOUND_BY)
def test_plant_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_seeds([FOUND_BY[plant], *range(PLANTED_SEEDS)])
