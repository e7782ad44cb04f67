"""The group machine under thousands of seeds: whatever the world does, what must hold holds after every event."""

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.group import Topics
from barnabas.coordinator.offsets import CommittedOffsets
from barnabas.coordinator.records import OffsetCommitKey, OffsetCommitValue
from barnabas.wire.messages.offsets import OffsetCommitRequest
from tests.coordinator.classic.simulation import World

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


def forget_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the live coordinator and a replay both would: they agree, and are both wrong."""
    apply = CommittedOffsets.apply

    def forget(self: CommittedOffsets, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is None or value.offset % 31 != 30:
            apply(self, key, value)

    monkeypatch.setattr(CommittedOffsets, "apply", forget)


def let_the_dead_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that has missed a generation commits what is another's."""
    check = ClassicGroup.check_commit

    def believe(
        self: ClassicGroup, request: OffsetCommitRequest, version: int, now: int, topics: Topics
    ) -> None:
        if request.member_id in self.members:
            request = replace(request, generation_id_or_member_epoch=self.generation)
        check(self, request, version, now, topics)

    monkeypatch.setattr(ClassicGroup, "check_commit", believe)


def run_seeds(seeds: range) -> None:
    for seed in seeds:
        World(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("plant", [forget_a_commit, let_the_dead_commit])
def test_a_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="committed"):
        run_seeds(range(BLOCKS * BLOCK))
