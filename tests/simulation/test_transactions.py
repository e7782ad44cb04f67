"""Transactions on three whole brokers under a hundred seeds: all or nothing, once, in order, and none stays open."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.coordinators.markers import MarkerSender
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.errors import Code
from tests.simulation import scenario
from tests.simulation.scenario import Scenario
from tests.simulation.transactional import SETTINGS, Transactional

SEEDS = 3000 if os.environ.get("BARNABAS_SOAK") else 100
AT_ONCE = 10


def run(seed: int) -> Transactional:
    made = Scenario(seed)
    client = Transactional(made.cluster)
    made.clients.append(client)
    made.run()
    return client


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "SETTINGS", scenario.SETTINGS | SETTINGS)


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_a_transaction_is_read_whole_or_not_at_all(first: int) -> None:
    committed = 0
    for seed in range(first, first + AT_ONCE):
        try:
            committed += sum(attempt.told is True for attempt in run(seed).attempts)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert committed > AT_ONCE


# --- planted, in the shell around the machines


def send_markers_once(patch: pytest.MonkeyPatch) -> None:
    """A marker that a partition refuses for now does not go again."""
    patch.setattr(MarkerSender, "_later", lambda *_: None)


def believe_producers(patch: pytest.MonkeyPatch) -> None:
    """A partition takes records of transactions that no coordinator knows of."""

    async def verify(self: Transactions, name: str, id_: int, epoch: int, tps: Any, *, add: bool) -> Any:
        return dict.fromkeys(tps, Code.NONE)

    patch.setattr(Transactions, "verify", verify)


@pytest.mark.parametrize("plant", [send_markers_once, believe_producers])
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        try:
            run(seed)
        except Exception:
            return
    raise AssertionError(f"{plant.__name__} was not found within {SEEDS} seeds")
