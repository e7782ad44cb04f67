"""Folders of partitions that do not count: deleted ones, and those of topics that the cluster does not have.

Called by `directories`, which knows what does count. A stray is kept under another name, because it may be the cluster
that has forgotten; what is deleted has one, too, until it is gone, so that a crash on the way leaves no half of it.
"""

import logging
import os
import re
from typing import NamedTuple
from uuid import UUID

from barnabas.errors import BarnabasError
from barnabas.log.directory import PARTITION_METADATA, DataDirectory
from barnabas.log.log import Log
from barnabas.types import Offset, TopicPartition, short_id

DELETED, STRAY = "-delete", "-stray"

_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_PUT_ASIDE = re.compile(r".+-[0-9]+\.[0-9a-f]{32}-(delete|stray)")
"""Ours, and Kafka's: what else a directory holds is not touched."""
LONGEST_NAME = 255

_logger = logging.getLogger("barnabas.log")


class FoundPartition(NamedTuple):
    """A partition as it was found in a directory."""

    tp: TopicPartition
    directory: DataDirectory
    log: Log
    topic_id: UUID | None
    """None where its folder does not say."""
    high_watermark: Offset | None
    cleaned: Offset | None


def partition_named(name: str) -> TopicPartition | None:
    """The partition that a folder of this name is of."""
    match = _PARTITION.fullmatch(name)
    if match is None or name.endswith((DELETED, STRAY)):
        return None
    return TopicPartition(match[1], int(match[2]))


def is_deleted(name: str) -> bool:
    """Whether a folder is what a crash has left of a deletion."""
    return _PUT_ASIDE.fullmatch(name) is not None and name.endswith(DELETED)


def put_aside(directory: DataDirectory, tp: TopicPartition, suffix: str) -> str:
    """Give a partition's folder a name that is never looked up."""
    ending = f"-{tp.partition}.{os.urandom(16).hex()}{suffix}"
    target = tp.topic[: LONGEST_NAME - len(ending)] + ending
    directory.rename_folder(str(tp), target)
    return target


class TwoCopies(NamedTuple):
    """Which of two folders of a partition counts, and whether all of the other is in it."""

    second_counts: bool
    is_superseded: bool


def judge(first: FoundPartition, second: FoundPartition, wanted: UUID | None) -> TwoCopies:
    """Of two folders of a partition that one counts which is of the wanted topic and has moved last, or has records.

    Two happen where a crash came between the two renames of a move, where a topic was made anew while a directory was
    offline, or a directory failed while the partition was made in it. Raises BarnabasError where both may be meant.
    """
    is_first, is_second = first.topic_id == wanted, second.topic_id == wanted
    if is_first and is_second:
        before, after = (each.directory.moves(str(each.tp)) for each in (first, second))
        if before != after and wanted is not None:
            return TwoCopies(after > before, is_superseded=True)
        is_first, is_second = first.log.end > 0, second.log.end > 0
        if is_first and is_second:
            raise BarnabasError(
                f"{first.tp} is in {first.directory.path} and in {second.directory.path}: move one of them away."
            )
    return TwoCopies(is_second and wanted is not None, is_superseded=False)


def tell_of_stray(tp: TopicPartition, target: str, found: UUID | None, wanted: UUID | None) -> None:
    """Say in one line that a partition was set aside, and how it comes back where it may have to."""
    if wanted is None or found is not None:
        _logger.warning("%s is not a partition of this cluster's topics: its folder is set aside", tp)
        return
    _logger.warning(
        "%s does not say which topic its records are of: its folder is set aside as %s. If they are of the topic that "
        "is there now, stop the broker, put that folder back in the place of %s, and write 'version: 0' and "
        "'topic_id: %s' as two lines into %s in it",
        tp,
        target,
        tp,
        short_id(wanted),
        PARTITION_METADATA,
    )
