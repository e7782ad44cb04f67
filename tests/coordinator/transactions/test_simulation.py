"""Producers, partitions and a group under a thousand seeds, and bugs that are planted one by one: each is found."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.coordinator import GroupCoordinator
from barnabas.coordinator.pending_offsets import PendingOffsets
from barnabas.coordinator.transactions import coordinator, rules
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator, TransactionEffects
from barnabas.coordinator.transactions.requests import End, Init, Marked
from barnabas.coordinator.transactions.transaction import Transaction
from barnabas.log.producers import ProducerStates
from barnabas.log.transactions.markers import Marker
from barnabas.wire.batch import BatchHeader
from tests.coordinator.transactions.simulation import run

SEEDS = 20_000 if os.environ.get("BARNABAS_SOAK") else 1000
AT_ONCE = 50
PLANTED_SEEDS = 1500
"""Within which each planted bug has to be found."""


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_what_is_read_as_committed_is_what_was_committed_once_and_in_order(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_seed_is_one_run() -> None:
    for seed in (1, 2, 4):
        once, again = run(seed), run(seed)
        assert [attempt.told for attempt in once.attempts] == [attempt.told for attempt in again.attempts]
        assert once.world.partitions[0].entries == again.world.partitions[0].entries


def test_the_seeds_go_through_what_they_should() -> None:
    outcomes = [run(seed) for seed in range(40)]
    happened = {what for outcome in outcomes for what in outcome.world.happened}
    assert happened >= {"lost", "repeated", "failover", "zombie", "next", "slow", "timed out"}
    assert happened >= {"TRANSACTION_COORDINATOR_FENCED", "INVALID_PRODUCER_EPOCH"}
    assert sum(attempt.told is True for outcome in outcomes for attempt in outcome.attempts) > 200


# --- planted


def end_whatever_is_open(patch: pytest.MonkeyPatch) -> None:
    """A late EndTxn ends a later transaction."""
    ended = rules.ended

    def careless(current: Transaction, asked: End, now: int) -> Transaction:
        return ended(current, asked._replace(producer=current.follower), now)

    patch.setattr(rules, "ended", careless)


def believe_every_coordinator(patch: pytest.MonkeyPatch) -> None:
    """A marker of an older coordinator counts."""
    check = ProducerStates.check_marker

    def careless(self: ProducerStates, header: BatchHeader, marker: Marker, version: int = 0) -> None:
        check(self, header, marker._replace(coordinator_epoch=1 << 30), version)

    patch.setattr(ProducerStates, "check_marker", careless)


def believe_markers_of_the_transaction_before(patch: pytest.MonkeyPatch) -> None:
    """A marker that comes late ends a transaction that has begun since."""
    patch.setattr(ProducerStates, "check_marker", lambda *_: None)


def show_offsets_at_once(patch: pytest.MonkeyPatch) -> None:
    """Offsets are shown before their marker."""
    patch.setattr(GroupCoordinator, "apply_in", lambda self, producer_id, record: self.apply(record))


def show_offsets_of_aborts(patch: pytest.MonkeyPatch) -> None:
    end = GroupCoordinator.end_transaction
    patch.setattr(
        GroupCoordinator,
        "end_transaction",
        lambda self, producer_id, *, commit: end(self, producer_id, commit=True),
    )


def forget_offsets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingOffsets, "settle", lambda self, producer_id: {})


def count_the_first_marker_for_all(patch: pytest.MonkeyPatch) -> None:
    """The transaction is over though partitions have no marker."""
    marked = TransactionCoordinator._marked

    def careless(self: TransactionCoordinator, told: Marked, now: int, token: Any, out: Any) -> None:
        unmarked = self._unmarked.get(told.transactional_id)
        marked(self, told._replace(partitions=set(unmarked or ())), now, token, out)

    patch.setitem(coordinator._HANDLERS, Marked, careless)


def forget_what_was_decided(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes over sends no markers."""
    loaded = TransactionCoordinator.loaded

    def careless(self: TransactionCoordinator, now: int) -> TransactionEffects:
        loaded(self, now)
        return TransactionEffects()

    patch.setattr(TransactionCoordinator, "loaded", careless)


def fence_nothing(patch: pytest.MonkeyPatch) -> None:
    """A new producer gets the epoch of the one before it."""
    initialised = rules.initialised

    def careless(current: Transaction | None, asked: Init, now: int) -> Transaction:
        made = initialised(current, asked, now)
        return made if current is None or made.state.is_ending else made._replace(epoch=current.epoch)

    patch.setattr(rules, "initialised", careless)


def let_unverified_batches_in(patch: pytest.MonkeyPatch) -> None:
    """A batch that comes after the end of its transaction opens another."""
    patch.setattr(ProducerStates, "_check_transaction", lambda *_: None)


PLANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    end_whatever_is_open,
    believe_every_coordinator,
    believe_markers_of_the_transaction_before,
    show_offsets_at_once,
    show_offsets_of_aborts,
    forget_offsets,
    count_the_first_marker_for_all,
    forget_what_was_decided,
    fence_nothing,
    let_unverified_batches_in,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(PLANTED_SEEDS):
        try:
            run(seed)
        except Exception:
            return
    raise AssertionError(f"{plant.__name__} was not found within {PLANTED_SEEDS} seeds")
