"""Bugs that are planted into whole brokers, one by one: the simulation finds each of them.

Those of the rules of replication are in tests/replication/test_plants.py, where a seed costs less.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from barnabas.broker.coordinators.host import CoordinatorHost
from barnabas.cluster.zookeeper.client import ZkOperation
from barnabas.cluster.zookeeper.controllership import Controllership
from barnabas.log.log import Log
from barnabas.log.salvage import Salvaged
from barnabas.types import Offset
from tests.simulation.scenario import run

SEEDS = 120
"""Within which each has to be found: one of six finds the first, one of three the second."""


def write_without_the_epoch_of_the_controller(patch: pytest.MonkeyPatch) -> None:
    """A controller that was deposed writes on, for as long as it does not know."""

    def careless(self: Controllership, operations: Sequence[ZkOperation]) -> None:
        self._client.multi(operations)

    patch.setattr(Controllership, "_multi", careless)


def load_a_coordinator_to_the_watermark(patch: pytest.MonkeyPatch) -> None:
    """Leave out what the last leader has acknowledged and this one does not know to be committed yet."""
    load, salvage = CoordinatorHost.load, Log.salvage
    known: dict[Log, Offset] = {}

    async def careless(self: CoordinatorHost[Any]) -> None:
        known[self.partition.log] = self.partition.high_watermark
        await load(self)

    def shortened(self: Log, below: Offset) -> Iterator[Salvaged]:
        return salvage(self, min(below, known.get(self, below)))

    patch.setattr(CoordinatorHost, "load", careless)
    patch.setattr(Log, "salvage", shortened)


PLANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str, int]] = [
    (write_without_the_epoch_of_the_controller, "depose", 19),
    (load_a_coordinator_to_the_watermark, "kill", 0),
]
"""With the kind of fault that they matter in, and a seed that has found them: it is tried first."""


def first_to_fail(seeds: Iterable[int], often: str) -> int | None:
    for seed in seeds:
        try:
            run(seed, often)
        except AssertionError:
            return seed
    return None


@pytest.mark.parametrize(("plant", "often", "first"), PLANTS, ids=[plant.__name__ for plant, *_ in PLANTS])
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], often: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert first_to_fail([first, *range(SEEDS)], often) is not None
