"""The embedded metadata store: one file on one machine, for a cluster of one broker.

Each commit is one line: a checksum and JSON, synced before it counts. After a crash a torn last line is
dropped; opening writes the whole anew, so the file never grows past what one run adds; where there is no room for
that, the file that is there is used as it is. A write that finds no room changes nothing and may work later. A sync
that fails ends the store: what the kernel says of the same file afterwards proves nothing.

An adapter of `cluster.store`, owned by `broker.metadata`, which serialises the calls. The one broker and its claim live
in memory: its directory is locked, so there is no other. The epoch of a claim goes with the first commit under it.
"""

import errno
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
    NO_BROKER,
    BrokerEpoch,
    BrokerImage,
    BrokerRegistered,
    BrokersConfigured,
    Change,
    ClusterImage,
    ControllerElected,
    ControllerEpoch,
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
from barnabas.cluster.store import Deposed, Event, Notice, Stale, StoreFailed, Subscriber, Update
from barnabas.disk import Disk, File, passes, read_whole
from barnabas.errors import BarnabasError
from barnabas.types import BrokerId, LeaderEpoch

FILE_NAME = "cluster-metadata.jsonl"

log = logging.getLogger("barnabas.cluster")

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

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
        ControllerElected,
    )
}


class LocalStore:
    """Makes changes last. What `commit` returned from is there after a crash."""

    def __init__(self, disk: Disk, directory: str, cluster_id: str) -> None:
        self._disk = disk
        self._failure: StoreFailed | None = None
        self._listeners: list[Subscriber] = []
        self._unwritten: list[Change] = []
        self._whole = 0
        self.name = os.path.join(directory, FILE_NAME)
        changes, version = self._load()
        self.image = replace(ClusterImage(cluster_id).after(changes), version=version, controller=NO_BROKER)
        self._file = self._opened()

    def subscribe(self, listener: Subscriber) -> None:
        self._listeners.append(listener)

    def register(self, broker: BrokerImage) -> BrokerEpoch:
        epoch = BrokerEpoch(self.image.version + 1)
        self._show(self.image.after([BrokerRegistered(broker._replace(epoch=epoch))]))
        return epoch

    def claim(self, broker: BrokerId, over: BrokerId | None = None) -> ControllerEpoch | None:
        if self.image.controller not in (NO_BROKER, broker):
            return None
        epoch = ControllerEpoch(self.image.controller_epoch + 1)
        self._unwritten = [ControllerElected(broker, epoch)]
        self._show(self.image.after(self._unwritten))
        return epoch

    def commit(self, changes: Sequence[Change], expected_version: Version) -> ClusterImage:
        """Write the changes down, then show them."""
        if self._failure is not None:
            raise self._failure
        if self.image.controller == NO_BROKER:
            raise Deposed("There is no controller: no broker has claimed this store.")
        if expected_version != self.image.version:
            raise Stale(
                f"The cluster is at version {self.image.version}, not at {expected_version} any more."
            )
        image = self.image.after(changes)
        before = self._file.size
        try:
            self._file.append(_line(image.version, [*self._unwritten, *changes]))
        except OSError as error:
            raise error if passes(error) else self._failed(error) from error
        try:
            self._file.sync()
        except OSError as error:
            # The line may be on the disk or not: let the next start not find it, if that can be had.
            with suppress(OSError):
                self._file.truncate(before)
            raise self._failed(error) from error
        self._unwritten = []
        self._show(image)
        return image

    def topic_configs(self, names: Sequence[str]) -> list[Mapping[str, str]]:
        topics = self.image.topics
        return [topics[name].configs if name in topics else {} for name in names]

    def tell(self, notice: Notice) -> None:
        self._give(notice)

    def close(self) -> None:
        self._listeners.clear()
        self._file.close()

    def _failed(self, error: OSError) -> StoreFailed:
        self._failure = StoreFailed(self.name, error)
        return self._failure

    def _show(self, image: ClusterImage) -> None:
        self.image = image
        self._give(Update(image))

    def _give(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    def _opened(self) -> File:
        """The file, written anew; as it was, where it cannot be written anew now."""
        temporary = self.name + ".tmp"
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
            # What could not be synced is gone with the file it was in: a lack of room says nothing of the old one.
            if error.errno not in _NO_ROOM or not self._disk.exists(self.name):
                raise
            log.warning("%s is used as it is, it cannot be written anew: %s", self.name, error)
            file = self._disk.open(self.name)
            if file.size != self._whole:
                file.truncate(self._whole)
                file.sync()
            return file
        self._disk.rename(temporary, self.name)
        self._disk.sync_dir(os.path.dirname(self.name))
        return self._disk.open(self.name)

    def _load(self) -> tuple[list[Change], Version]:
        """All changes there are, and the version that they lead to."""
        version = Version(0)
        found: list[Change] = []
        if not self._disk.exists(self.name):
            return found, version
        lines = read_whole(self._disk, self.name).splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            checksum, _, text = line[:-1].partition(b" ")
            if line[-1:] != b"\n" or checksum != b"%08x" % crc32(text):
                if number < len(lines):
                    raise BarnabasError(
                        f"{self.name} is damaged in line {number}: restore it, or move the data folder away."
                    )
                log.warning("%s: dropped a torn last line of %d bytes", self.name, len(line))
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
    changes.append(ControllerElected(NO_BROKER, image.controller_epoch))
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
    more += [list(partition.elr)] if partition.elr else []
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
    elr: Sequence[int] = (),
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
        _ids(elr),
    )


def _ids(numbers: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))
