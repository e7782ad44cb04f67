"""Bugs that are planted into the machines and their shell, one by one: the simulation finds each of them.

What is promised here is that the simulation can see: a rule that could be left out without a seed that fails is held
by nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from barnabas.cluster import isr
from barnabas.errors import Refused
from barnabas.log.flush import Flush
from barnabas.replication.following import Effect, FetchPosition, Following, Truncate
from barnabas.replication.histories import Divergence, divergence
from barnabas.replication.leadership import Leadership, RemoteReplica
from barnabas.types import LeaderEpoch, Millis, Offset
from tests.replication.simulated.broker import SimulatedBroker
from tests.replication.simulated.simulation import run

SEEDS = 1500
"""Within which each has to be found. The one that found it is tried first: a change of the draws costs a search."""


def truncate_to_the_watermark(patch: pytest.MonkeyPatch) -> None:
    """Cut what is not known to be committed, ask nothing about epochs: what Kafka did before KIP-101."""

    def begin(self: Following) -> list[Effect]:
        return [Truncate(self.high_watermark)] if self.high_watermark < self._log.end else []

    patch.setattr(Following, "begin", begin)
    patch.setattr(SimulatedBroker, "divergence", lambda *_: None)


def end_an_epoch_at_the_watermark(patch: pytest.MonkeyPatch) -> None:
    """Answer a follower that is ahead of the watermark as if its records were not there."""

    class Committed(NamedTuple):
        start: Offset
        end: Offset
        epochs: Any

    def parted(self: SimulatedBroker, role: Leadership, position: FetchPosition) -> Divergence | None:
        if position.epoch != role.epoch:
            return None
        view = Committed(self.log.start, role.high_watermark, self.log.epochs)
        return divergence(view, position.last_epoch, position.offset)

    patch.setattr(SimulatedBroker, "divergence", parted)


def count_fetches_of_older_epochs(patch: pytest.MonkeyPatch) -> None:
    fetched = Leadership.fetched

    def careless(self: Leadership, replica: Any, life: Any, epoch: Any, *more: Any) -> bool:
        return fetched(self, replica, life, self.epoch, *more)

    patch.setattr(Leadership, "fetched", careless)


def count_a_shrink_before_it_is_granted(patch: pytest.MonkeyPatch) -> None:
    recount = Leadership._recount

    def careless(self: Leadership) -> None:
        recount(self)
        if self._pending:
            wished = {broker for broker, _ in self._pending.isr}
            self._counted = [remote for remote in self._counted if remote.broker in wished]

    patch.setattr(Leadership, "_recount", careless)


def join_before_the_epochs_start(patch: pytest.MonkeyPatch) -> None:
    """Join with what this leader knows to be committed, which may be less than what was."""

    def careless(self: Leadership, remote: RemoteReplica, now: Millis) -> None:
        if remote.end >= self.high_watermark and self._is_eligible(remote) and self._pending is None:
            self._ask([*self.isr, remote.broker])

    patch.setattr(Leadership, "_consider", careless)


def join_by_a_stale_broker_epoch(patch: pytest.MonkeyPatch) -> None:
    """Count what a replica had in its last life, also where the controller has taken it out meanwhile."""
    adopt = Leadership._adopt

    def careless(self: Leadership, *state: Any) -> bool:
        ends = {remote.broker: remote.end for remote in self.remotes.values()}
        has_moved = adopt(self, *state)
        for remote in self.remotes.values():
            remote.end = ends.get(remote.broker, remote.end)
        return has_moved

    patch.setattr(Leadership, "_adopt", careless)
    patch.setattr(Leadership, "_is_eligible", lambda *_: True)
    patch.setattr(isr, "_check_members", lambda *_: None)


def swallow_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    sync = Flush.run

    def careless(self: Flush) -> None:
        try:
            sync(self)
        except OSError:
            return

    patch.setattr(Flush, "run", careless)


def begin_with_the_end_for_a_watermark(patch: pytest.MonkeyPatch) -> None:
    lead = SimulatedBroker._lead

    def careless(self: SimulatedBroker, state: Any) -> None:
        self.high_watermark = self.log.end
        lead(self, state)

    patch.setattr(SimulatedBroker, "_lead", careless)


def commit_with_too_few_in_sync(patch: pytest.MonkeyPatch) -> None:
    recount = Leadership._recount

    def careless(self: Leadership) -> None:
        recount(self)
        self._is_short = False

    patch.setattr(Leadership, "_recount", careless)


def count_what_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedBroker, "_counted", lambda self: self.log.end)


def cut_without_a_recovery_point(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedBroker, "before_cut", lambda *_: None)


def begin_an_epoch_without_noting_it(patch: pytest.MonkeyPatch) -> None:
    """Epochs come with their first record alone: the leader's log has no place where the last one ended."""
    lead = SimulatedBroker._lead

    def careless(self: SimulatedBroker, state: Any) -> None:
        epochs = self.log.epochs
        entries, latest = list(epochs.entries), epochs.latest
        lead(self, state)
        epochs.entries[:], epochs.latest = entries, LeaderEpoch(latest)

    patch.setattr(SimulatedBroker, "_lead", careless)


PLANTS: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    truncate_to_the_watermark: 11,
    end_an_epoch_at_the_watermark: 0,
    count_fetches_of_older_epochs: 20,
    count_a_shrink_before_it_is_granted: 1,
    join_before_the_epochs_start: 86,
    join_by_a_stale_broker_epoch: 691,
    swallow_a_failed_sync: 67,
    begin_with_the_end_for_a_watermark: 0,
    commit_with_too_few_in_sync: 1,
    count_what_is_not_flushed: 14,
    cut_without_a_recovery_point: 123,
    begin_an_epoch_without_noting_it: 27,
}
"""Each with the seed that found it."""


def first_to_fail(seeds: Iterable[int]) -> int | None:
    for seed in seeds:
        try:
            run(seed)
        except (AssertionError, Refused):
            return seed
    return None


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert first_to_fail([PLANTS[plant], *range(SEEDS)]) is not None
