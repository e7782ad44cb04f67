"""The small text files of offsets: Kafka's format, replaced whole, never half believed."""

from pathlib import Path

import pytest

from barnabas.disk import RealDisk
from barnabas.log.checkpoint import CorruptCheckpoint, parse_offsets, read_offsets, write_offsets
from barnabas.types import Offset, TopicPartition


def test_offsets_come_back_as_written(tmp_path: Path) -> None:
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    offsets = {TopicPartition("a.b_c", 0): Offset(7), TopicPartition("t-1", 12): Offset(2**62)}
    write_offsets(RealDisk(), path, offsets)
    assert read_offsets(RealDisk(), path) == offsets


def test_the_text_is_kafkas(tmp_path: Path) -> None:
    path = tmp_path / "log-start-offset-checkpoint"
    write_offsets(RealDisk(), str(path), {TopicPartition("orders", 3): Offset(42)})
    assert path.read_bytes() == b"0\n1\norders 3 42\n"


def test_no_file_means_no_offsets(tmp_path: Path) -> None:
    assert read_offsets(RealDisk(), str(tmp_path / "nothing")) == {}


def test_a_new_text_replaces_the_old_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = str(tmp_path / "replication-offset-checkpoint")
    write_offsets(RealDisk(), path, {TopicPartition("a", 0): Offset(1), TopicPartition("b", 0): Offset(1)})
    write_offsets(RealDisk(), path, {TopicPartition("a", 0): Offset(2)})
    assert read_offsets(RealDisk(), path) == {TopicPartition("a", 0): 2}
    assert [entry.name for entry in tmp_path.iterdir()] == ["replication-offset-checkpoint"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"x\n0\n",
        b"0\nmany\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0 1\nb 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na zero 1\n",
        b"\xff\xfe",
    ],
)
def test_a_text_that_does_not_add_up_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_offsets(text)
