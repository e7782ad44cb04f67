"""Three whole brokers that exchange frames, under a hundred seeds: nothing acknowledged or seen is lost."""

import os
import subprocess
import sys

import pytest

from tests.simulation.scenario import run

SEEDS = 5000 if os.environ.get("BARNABAS_SOAK") else 100
AT_ONCE = 10


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_nothing_acknowledged_or_seen_is_lost_and_writing_goes_on(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_seed_is_one_run() -> None:
    """Whatever ran before in the same process, and whatever order Python gives to sets in another one."""
    seeds = (1, 11, 160)
    here = [run(seed).fingerprint for seed in seeds]
    assert [run(seed).fingerprint for seed in reversed(seeds)] == here[::-1]
    script = f"from tests.simulation.scenario import run\nfor seed in {seeds}: print(run(seed).fingerprint)"
    order = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    other = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": order, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.split() == here
    assert len(set(here)) == len(seeds)


def test_the_seeds_go_through_what_they_should() -> None:
    outcomes = [run(seed) for seed in range(15)]
    happened = {event[1] for outcome in outcomes for event in outcome.trace}
    assert happened >= {
        "kill",
        "power cut",
        "halts",
        "pause",
        "cut",
        "reset",
        "without zookeeper",
        "stop",
        "serves",
    }
    assert happened >= {"expires", "depose", "acknowledged", "committed", "shown"}
    assert sum(outcome.acknowledged for outcome in outcomes) > 500
    assert sum(outcome.committed for outcome in outcomes) > 300
    assert sum(outcome.epoch for outcome in outcomes) > 50
