"""Three whole brokers that exchange frames, under a hundred seeds: nothing acknowledged or seen is lost."""

import logging
import os
from collections.abc import Iterator

import pytest

from tests.simulation.scenario import run

SEEDS = 5000 if os.environ.get("BARNABAS_SOAK") else 100
AT_ONCE = 10


@pytest.fixture(autouse=True)
def _without_the_logs_of_brokers() -> Iterator[None]:
    """They tell of every fault, and of a broker whose disk is gone."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_nothing_acknowledged_or_seen_is_lost_and_writing_goes_on(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_seeds_go_through_what_they_should() -> None:
    outcomes = [run(seed) for seed in range(20)]
    happened = {event[1] for outcome in outcomes for event in outcome.trace}
    assert happened >= {"kill", "power cut", "pause", "cut", "without zookeeper", "stop", "serves"}
    assert sum(outcome.acknowledged for outcome in outcomes) > 500
    assert sum(outcome.epoch for outcome in outcomes) > 20
