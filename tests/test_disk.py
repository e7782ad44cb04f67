"""Files of the operating system: what was written is what is read, whatever was kept of it."""

from pathlib import Path

import pytest

from barnabas.disk import RealDisk, RealFile


@pytest.fixture
def file(tmp_path: Path) -> RealFile:
    return RealDisk().open(f"{tmp_path}/file", create=True)


def test_what_was_just_written_is_read(file: RealFile) -> None:
    file.append(b"first")
    file.append(b"second")
    assert file.pread(6, 5) == b"second"
    assert file.pread(5, 0) == b"first"
    assert file.pread(3, 5) == b"sec"
    assert file.pread(100, 5) == b"second"


def test_what_was_written_does_not_change_with_the_buffer_it_came_from(file: RealFile) -> None:
    buffer = bytearray(b"first")
    file.append(memoryview(buffer))
    buffer[:] = b"other"
    assert file.pread(5, 0) == b"first"


def test_what_was_cut_off_is_not_read_again(file: RealFile) -> None:
    file.append(b"first")
    file.append(b"second")
    file.truncate(5)
    assert file.pread(6, 5) == b""
    file.append(b"x" * 5000)
    assert file.pread(6, 5) == b"xxxxxx"
