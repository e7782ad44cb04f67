"""Members under hundreds of seeds: whatever the world does, no member commits what is another's, and peace returns."""

import os

import pytest

from tests.client.consumer.member_simulation import World

BLOCK = 15
BLOCKS = 100 if os.environ.get("BARNABAS_SOAK") else 4


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_seed_breaks_a_member(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        try:
            World(seed).run()
        except Exception as problem:
            problem.add_note(
                f"seed {seed}: World({seed}).run() in tests/client/consumer/member_simulation.py"
            )
            raise
