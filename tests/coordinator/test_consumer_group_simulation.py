"""The KIP-848 machine under many seeds: whatever members and network do, what must hold holds after every event."""

import os

import pytest

from tests.coordinator.consumer_simulation import World

BLOCK = 50
BLOCKS = 200 if os.environ.get("BARNABAS_SOAK") else 20


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_seed_breaks_a_consumer_group(block: int) -> None:
    """One holder a partition, an owner for each once it is quiet, epochs that never fall, a log that tells it all."""
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        try:
            World(seed).run()
        except Exception as problem:
            problem.add_note(f"seed {seed}: World({seed}).run() in tests/coordinator/consumer_simulation.py")
            raise
