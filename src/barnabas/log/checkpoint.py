"""Small text files that say where each partition stands: recovery points, start offsets, high watermarks.

Kafka's own format: a version line, a line with the number of entries, one line an entry. `directories` keeps
one file of each kind a data directory; `epochs` writes its entries in the same shape. A file is always whole:
it is replaced by a rename, and one that does not say what it promises is refused instead of half believed.
"""

from collections.abc import Iterable, Mapping

from barnabas.disk import Disk, read_whole, write_atomically
from barnabas.errors import BarnabasError
from barnabas.types import Offset, TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

_VERSION = "0"


class CorruptCheckpoint(BarnabasError):
    """A checkpoint file that cannot be believed."""


def format_entries(entries: Iterable[str]) -> bytes:
    """The text of a checkpoint file with these lines."""
    lines = list(entries)
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def parse_entries(data: bytes, columns: int) -> list[list[str]]:
    """The fields of each line; raises CorruptCheckpoint where count, version or shape are not right."""
    try:
        lines = data.decode().splitlines()
        version, count = lines[0].strip(), int(lines[1])
    except (UnicodeDecodeError, IndexError, ValueError):
        raise CorruptCheckpoint(
            "the checkpoint does not begin with a version and a number of entries"
        ) from None
    if version != _VERSION:
        raise CorruptCheckpoint(f"the checkpoint has version {version[:20]!r}; only {_VERSION} is known")
    rows = [line.split(" ") for line in lines[2:] if line]
    if len(rows) != count:
        raise CorruptCheckpoint(f"the checkpoint promises {count} entries and has {len(rows)}")
    for row in rows:
        if len(row) != columns:
            raise CorruptCheckpoint(f"the checkpoint has a line of {len(row)} fields where {columns} belong")
    return rows


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Replace a file of offsets by partition."""
    entries = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    write_atomically(disk, path, format_entries(entries))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """The offsets of a file; none where there is no file."""
    if not disk.exists(path):
        return {}
    return parse_offsets(read_whole(disk, path))


def parse_offsets(data: bytes) -> dict[TopicPartition, Offset]:
    """The offsets in a checkpoint's text."""
    offsets: dict[TopicPartition, Offset] = {}
    for topic, partition, offset in parse_entries(data, 3):
        try:
            offsets[TopicPartition(topic, int(partition))] = Offset(int(offset))
        except ValueError:
            raise CorruptCheckpoint(f"the checkpoint's line of {topic[:80]!r} has no numbers") from None
    return offsets
