"""The embedded metadata store: one file on one machine, for a cluster of one broker.

Each commit is one line: a checksum and JSON, synced before it counts. After a crash a torn last line is
dropped; opening writes the whole anew, so the file never grows past what one run adds; where there is no room for
that, the file that is there is used as it is. A sync that fails ends the store: what the kernel says of the same
file afterwards proves nothing. Owned by `broker.metadata`, which serialises the calls.
"""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID
from zlib import crc32

from barnabas.cluster.image import (
    BrokersConfigured,
    Change,
    ClusterImage,
    LeaderRestarted,
    PartitionEpoch,
    PartitionImage,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsTaken,
    Recovery,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
    Version,
)
from barnabas.cluster.store import StoreFailed
from barnabas.disk import Disk, File, read_whole
from barnabas.errors import BarnabasError
from barnabas.types import BrokerId, LeaderEpoch

FILE_NAME = "cluster-metadata.jsonl"

log = logging.getLogger("barnabas.cluster")

_CHANGES = {
    change.__name__: change
    for change in (
        TopicCreated,
        TopicDeleted,
        PartitionsAdded,
        PartitionsChanged,
        TopicConfigured,
        BrokersConfigured,
        ProducerIdsTaken,
        LeaderRestarted,
    )
}


class LocalStore:
    """Makes changes last. What `commit` returned from is there after a crash."""

    def __init__(self, disk: Disk, directory: str, empty: ClusterImage) -> None:
        self._disk = disk
        self._failure: StoreFailed | None = None
        self.path = os.path.join(directory, FILE_NAME)
        self._whole = 0
        changes, version = self._load()
        self.image = replace(empty.after(changes), version=version)
        self._file = self._opened()

    def commit(self, changes: Sequence[Change]) -> ClusterImage:
        """Write the changes down, then apply them. All of them last, or none.

        An OSError says that nothing was written: another try may work. StoreFailed is for good.
        """
        if self._failure is not None:
            raise self._failure
        before = self._file.size
        image = self.image.after(changes)
        self._file.append(_line(image.version, changes))
        try:
            self._file.sync()
        except OSError as error:
            self._failure = StoreFailed(self.path, error)
            # The line may be on the disk or not: let the next start not find it, if that can be had.
            with suppress(OSError):
                self._file.truncate(before)
            raise self._failure from error
        self.image = image
        return image

    def close(self) -> None:
        self._file.close()

    def _opened(self) -> File:
        """The file, written anew; as it was, where it cannot be written anew now."""
        temporary = self.path + ".tmp"
        try:
            with suppress(FileNotFoundError):
                self._disk.remove(temporary)
            file = self._disk.open(temporary, create=True)
            try:
                file.append(_line(self.image.version, _changes_to(self.image)))
                file.sync()
            finally:
                file.close()
        except OSError as error:
            with suppress(OSError):
                self._disk.remove(temporary)
            if not self._disk.exists(self.path):
                raise
            log.warning("%s is used as it is, it cannot be written anew: %s", self.path, error)
            file = self._disk.open(self.path)
            if file.size != self._whole:
                file.truncate(self._whole)
                file.sync()
            return file
        self._disk.rename(temporary, self.path)
        self._disk.sync_dir(os.path.dirname(self.path))
        return self._disk.open(self.path)

    def _load(self) -> tuple[list[Change], Version]:
        """All changes there are, and the version that they lead to."""
        version = Version(0)
        found: list[Change] = []
        if not self._disk.exists(self.path):
            return found, version
        lines = read_whole(self._disk, self.path).splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            checksum, _, text = line[:-1].partition(b" ")
            if line[-1:] != b"\n" or checksum != b"%08x" % crc32(text):
                if number < len(lines):
                    raise BarnabasError(
                        f"{self.path} is damaged in line {number}: restore it, or move the data folder away."
                    )
                log.warning("%s: dropped a torn last line of %d bytes", self.path, len(line))
                break
            self._whole += len(line)
            rows = json.loads(text)
            # The version stands first; earlier releases did not write it.
            version = Version(rows.pop(0)["version"] if rows and "version" in rows[0] else version + 1)
            found += map(_from_json, rows)
        return found, version


def _changes_to(image: ClusterImage) -> list[Change]:
    """The shortest way from an empty image to this one."""
    changes: list[Change] = [TopicCreated(topic) for topic in image.topics.values()]
    changes += [BrokersConfigured(broker, configs) for broker, configs in image.broker_configs.items()]
    changes.append(ProducerIdsTaken(image.next_producer_id))
    return changes


def _line(version: Version, changes: Sequence[Change]) -> bytes:
    rows: list[dict[str, Any]] = [{"version": version}]
    rows += [
        {"change": type(change).__name__} | {name: _plain(value) for name, value in change._asdict().items()}
        for change in changes
    ]
    text = json.dumps(rows, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(text), text)


def _plain(value: Any) -> Any:
    match value:
        case TopicImage():
            return {
                "name": value.name,
                "id": str(value.id),
                "partitions": _plain(value.partitions),
                "configs": dict(value.configs),
            }
        case PartitionImage():
            return _row(value)
        case tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case _:
            return value


def _row(partition: PartitionImage) -> list[Any]:
    """Replicas, in-sync replicas, leader, its epoch; then, where there is more to say, what came in later versions."""
    row = [list(partition.replicas), list(partition.isr), partition.leader, partition.leader_epoch]
    more = [partition.partition_epoch, list(partition.adding), list(partition.removing), partition.recovery]
    return [*row, *more] if any(more) else row


def _from_json(body: dict[str, Any]) -> Change:
    kind = body.pop("change")
    if "topic" in body:
        topic = body["topic"]
        body["topic"] = TopicImage(
            topic["name"], UUID(topic["id"]), _partitions(topic["partitions"]), topic["configs"]
        )
    match body.get("partitions"):
        case list(rows):
            body["partitions"] = _partitions(rows)
        case dict(changed):
            body["partitions"] = {int(index): _partition(*row) for index, row in changed.items()}
    change: Change = _CHANGES[kind](**body)
    return change


def _partitions(rows: list[Any]) -> tuple[PartitionImage, ...]:
    return tuple(_partition(*row) for row in rows)


def _partition(
    replicas: list[int],
    isr: list[int],
    leader: int,
    leader_epoch: int,
    partition_epoch: int = 0,
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
    recovery: int = Recovery.RECOVERED,
) -> PartitionImage:
    return PartitionImage(
        _ids(replicas),
        _ids(isr),
        BrokerId(leader),
        LeaderEpoch(leader_epoch),
        PartitionEpoch(partition_epoch),
        _ids(adding),
        _ids(removing),
        Recovery(recovery),
    )


def _ids(numbers: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))
