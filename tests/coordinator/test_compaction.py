"""Compaction leaves the last record of each key, and tombstones for a while: a load must find the same groups in it."""

from typing import Any

import pytest

from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.coordinator import GroupCoordinator
from barnabas.coordinator.effects import Effects
from barnabas.coordinator.records import decode
from tests.coordinator.classic.simulation import compacted
from tests.coordinator.consumer.upgrade_simulation import MixedWorld, settings


class Compacting(MixedWorld):
    """Mutable: a world that is compacted after each append, to see what a load would make of it."""

    def carry_out(self, effects: Effects) -> None:
        super().carry_out(effects)
        if effects.records and self.rng.random() < 0.3:
            whole = self._loaded(self.log)
            for tombstones in (True, False):
                assert self._loaded(compacted(self.log, tombstones=tombstones)) == whole

    def _loaded(self, log: list[tuple[bytes, bytes | None]]) -> dict[str, Any]:
        coordinator = GroupCoordinator(settings(), self.topics)
        for key, value in log:
            record = decode(key, value)
            assert record is not None
            coordinator.apply(record)
        return {group.id: _known(group) for group in coordinator.groups.values()}


def _known(group: Any) -> Any:
    if isinstance(group, ClassicGroup):
        return group.recording
    state = group.state
    return {name: getattr(state, name) for name in state.__slots__}


@pytest.mark.parametrize("block", range(4))
def test_a_compacted_log_gives_the_same_groups(block: int) -> None:
    """Groups of both protocols, and groups on their way from one to the other."""
    for seed in range(block * 10, (block + 1) * 10):
        Compacting(seed).run()
