"""Owns the test of what lies on disk: every batch whole, valid and in order; by our own code and by Kafka's.

Called by tests/chaos and tests/hostile. It reads the files as bytes, past the log that wrote them.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from barnabas.wire.batch import BatchHeader, crc_of, read_header
from tests.java import java_with

_PREFIX = 12  # base offset and length stand in front of what a batch's length counts
_HEADER = 61
_DUMP_S = 120.0


def partitions(data: Path) -> list[Path]:
    """The folders of all partitions below a data folder."""
    return sorted({log.parent for log in data.rglob("*.log") if log.stem.isdigit()})


def partition(data: Path, name: str) -> Path:
    """The folder of one partition, `TOPIC-N`, wherever below the data folder it is."""
    (found,) = (folder for folder in partitions(data) if folder.name == name)
    return found


def batches(folder: Path, *, growing: bool = False) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch of a partition with its bytes; fails at the first that is not valid.

    While a broker appends (`growing`), the last batch of the last segment may be seen half written.
    """
    next_offset = 0
    segments = sorted(folder.glob("*.log"))
    for segment in segments:
        data = segment.read_bytes()
        assert int(segment.stem) >= next_offset, f"{segment} begins below the end of the one before"
        at = 0
        while at < len(data):
            if growing and segment == segments[-1] and not _is_whole(data, at):
                return
            assert _is_whole(data, at), f"{segment} has a torn batch at byte {at}"
            header = read_header(data, at)
            assert header.magic == 2, f"{segment} at byte {at}: magic {header.magic}"
            assert header.crc == crc_of(data, at, header.size), f"{segment} at byte {at}: wrong checksum"
            assert header.base_offset >= next_offset, f"{segment} at byte {at}: offsets go back"
            next_offset = header.last_offset + 1
            yield header, data[at : at + header.size]
            at += header.size


def _is_whole(data: bytes, at: int) -> bool:
    if at + _HEADER > len(data):
        return False
    return at + read_header(data, at).size <= len(data)


def check_all(data: Path, *, growing: bool = False) -> int:
    """Checks all partitions below a data folder; gives the number of records they hold."""
    return sum(header.count for folder in partitions(data) for header, _ in batches(folder, growing=growing))


def dump(libs: Path, data: Path) -> str:
    """What Kafka's DumpLogSegments says of all segments and indexes below a folder; fails if it objects."""
    kinds = {".log", ".index", ".timeindex"}
    files = sorted(f for folder in partitions(data) for f in folder.iterdir() if f.suffix in kinds)
    assert files, f"no segments below {data}"
    done = subprocess.run(
        [
            *java_with(libs, heap="512m"),
            *("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration"),
            *("--files", ",".join(map(str, files))),
        ],
        capture_output=True,
        text=True,
        timeout=_DUMP_S,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-2000:]
    objections = [
        line
        for line in said.splitlines()
        if "isvalid: false" in line.lower() or "mismatch" in line.lower() or "exception" in line.lower()
    ]
    assert not objections, "\n".join(objections[:20])
    return done.stdout
