"""The disk that tests crash: it loses what it may lose, and nothing else."""

import errno

import pytest

from barnabas.disk import SyncFailed, read_whole, write_atomically
from barnabas.testing.disk import PowerCut, SimulatedDisk, Survival


def _with(data: bytes) -> SimulatedDisk:
    """A disk with one file that lasts."""
    disk = SimulatedDisk()
    file = disk.open("a", create=True)
    file.append(data)
    file.sync()
    disk.sync_dir("")
    return disk


def test_what_was_not_synced_is_lost() -> None:
    disk = _with(b"kept")
    disk.open("a").append(b" and lost")
    assert read_whole(disk, "a") == b"kept and lost"
    assert read_whole(disk.crash(), "a") == b"kept"


def test_a_synced_file_without_a_synced_name_is_lost() -> None:
    disk = SimulatedDisk()
    file = disk.open("a", create=True)
    file.append(b"x")
    file.sync()
    assert disk.crash().list("") == []
    assert disk.crash(Survival.EVERYTHING).list("") == ["a"]


def test_a_prefix_can_survive() -> None:
    disk = _with(b"kept")
    disk.open("a").append(b"0123456789")
    found = {read_whole(disk.crash(Survival.PREFIX, seed), "a") for seed in range(100)}
    assert found == {b"kept" + b"0123456789"[:size] for size in range(11)}


def test_single_sectors_can_be_missing() -> None:
    disk = _with(b"k" * 512)
    disk.open("a").append(b"n" * 5120)
    holes = [read_whole(disk.crash(Survival.SECTORS, seed), "a") for seed in range(50)]
    assert all(data.startswith(b"k" * 512) for data in holes)
    assert any(b"n\0" in data and b"\0n" in data for data in holes)


def test_names_come_back_as_of_some_moment() -> None:
    disk = _with(b"")
    disk.rename("a", "b")
    disk.open("c", create=True)
    disk.remove("b")
    found = {tuple(disk.crash(Survival.PREFIX, seed).list("")) for seed in range(100)}
    assert found == {("a",), ("b",), ("b", "c"), ("c",)}


def test_an_atomic_write_is_old_or_new_at_every_cut() -> None:
    whole = _with(b"old")
    begun = whole.operations
    write_atomically(whole, "a", b"new")
    for operation in range(begun + 1, whole.operations + 1):
        disk = _with(b"old")
        disk.stop_at = operation
        with pytest.raises(PowerCut):
            write_atomically(disk, "a", b"new")
        for survival in Survival:
            assert read_whole(disk.crash(survival, seed=operation), "a") in (b"old", b"new")
    assert read_whole(whole.crash(), "a") == b"new"


def test_after_the_power_went_nothing_works() -> None:
    disk = _with(b"x")
    disk.stop_at = disk.operations + 1
    file = disk.open("a")
    for operation in (lambda: file.append(b"y"), file.sync, lambda: disk.list(""), lambda: file.pread(1, 0)):
        with pytest.raises(PowerCut):
            operation()


def test_a_full_disk_writes_nothing() -> None:
    disk = _with(b"1234")
    disk.capacity = 6
    with pytest.raises(OSError, match="No space left") as full:
        disk.open("a").append(b"567")
    assert full.value.errno == errno.ENOSPC
    assert read_whole(disk, "a") == b"1234"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.ENOMEM])
def test_what_a_failed_sync_has_lost_is_seen_until_the_power_goes_and_no_later_sync_saves_it(
    number: int,
) -> None:
    disk = _with(b"kept")
    file = disk.open("a")
    file.append(b" lost")
    disk.fail_at, disk.error = disk.operations + 1, number
    with pytest.raises(SyncFailed) as failed:
        file.sync()
    assert failed.value.errno == number
    file.append(b" later")
    file.sync()
    assert read_whole(disk, "a") == b"kept lost later"
    for survival in Survival:
        assert read_whole(disk.crash(survival), "a") == b"kept\0\0\0\0\0 later"


def test_names_that_a_failed_sync_has_lost_stay_lost() -> None:
    disk = _with(b"")
    disk.rename("a", "b")
    disk.fail_at = disk.operations + 1
    with pytest.raises(SyncFailed):
        disk.sync_dir("")
    disk.open("c", create=True)
    disk.sync_dir("")
    assert disk.list("") == ["b", "c"]
    assert disk.crash(Survival.EVERYTHING).list("") == ["a", "c"]


def test_a_lock_keeps_others_out() -> None:
    disk = SimulatedDisk()
    held = disk.lock(".lock")
    with pytest.raises(BlockingIOError):
        disk.lock(".lock")
    held.close()
    disk.lock(".lock")
