"""The KIP-848 machine under many seeds: whatever members and network do, what must hold holds after every event."""

import os

import pytest

from tests.coordinator.consumer.simulation import World
from tests.coordinator.consumer.upgrade_simulation import MixedWorld

BLOCK = 50
BLOCKS = 200 if os.environ.get("BARNABAS_SOAK") else 10


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_seed_breaks_a_consumer_group(block: int) -> None:
    """One holder a partition, an owner for each once it is quiet, epochs that never fall, a log that tells it all."""
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        try:
            World(seed).run()
        except Exception as problem:
            problem.add_note(f"seed {seed}: World({seed}).run() in tests/coordinator/consumer_simulation.py")
            raise


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_seed_breaks_a_group_of_both_protocols(block: int) -> None:
    """And nothing is lost when it becomes a group of the other kind, in the middle of whatever it does."""
    kinds: list[str] = []
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        world = MixedWorld(seed)
        try:
            world.run()
        except Exception as problem:
            problem.add_note(
                f"seed {seed}: MixedWorld({seed}).run() in tests/coordinator/upgrade_simulation.py"
            )
            raise
        kinds += world.kinds
    assert len(kinds) > 2 * BLOCK, "groups of one kind become groups of the other"
