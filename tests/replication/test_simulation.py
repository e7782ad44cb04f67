"""A partition with three replicas under a thousand seeds: what was acknowledged or seen stays, and writing goes on."""

import os

import pytest

from tests.replication.simulated.simulation import run

SEEDS = 100_000 if os.environ.get("BARNABAS_SOAK") else 1000
AT_ONCE = 50


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_nothing_acknowledged_or_seen_is_lost_and_writing_goes_on(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_seed_is_one_run() -> None:
    for seed in (1, 2, 3):
        assert run(seed) == run(seed)


def test_the_seeds_go_through_what_they_should() -> None:
    outcomes = [run(seed) for seed in range(40)]
    happened = {event[1] for outcome in outcomes for event in outcome.trace}
    assert happened >= {"kill", "power cut", "halt", "pause", "cut", "disturb", "lead", "truncate", "gone"}
    assert sum(outcome.acknowledged for outcome in outcomes) > 1000
    assert sum(outcome.elections for outcome in outcomes) > 200
