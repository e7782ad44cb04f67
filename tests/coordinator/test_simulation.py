"""The group machine under thousands of seeds: whatever the world does, what must hold holds after every event."""

import os

import pytest

from tests.coordinator.simulation import World

BLOCK = 100
BLOCKS = 200 if os.environ.get("BARNABAS_SOAK") else 20


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_seed_breaks_a_group(block: int) -> None:
    """One owner a partition and generation, offsets that never fall by themselves, a log that tells it all."""
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        try:
            World(seed).run()
        except Exception as problem:
            problem.add_note(f"seed {seed}: World({seed}).run() in tests/coordinator/simulation.py")
            raise
