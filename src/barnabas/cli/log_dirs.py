"""`barnabas log dirs|move`: the data directories of brokers, and replicas that go from one to another."""

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.exits import WrongUsage, ends_well, fail
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, InZooKeeper, admin_of
from barnabas.errors import BarnabasError, Code, counted
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.brokers import LogDir, StoredPartition

_LOOK_S = 0.3


@ends_well
def dirs(
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="ID", help="Of this broker; of all if not given.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Print where its partitions are.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Print the data directories of brokers with what is in them, and the replicas on their way to another.

    \b
    barnabas log dirs
    barnabas log dirs --broker 1 --topic orders
    """
    with admin_of(bootstrap, zookeeper) as admin:
        if broker is not None:
            _check_known(admin, broker)
        found = admin.describe_log_dirs(None if broker is None else [broker])
    for each in found:
        typer.echo(_line(each))
        for stored in sorted(each.partitions, key=lambda row: row.partition):
            if stored.is_future and topic in (None, stored.partition.topic):
                typer.echo(
                    f"\t{stored.partition}\tis on its way here: {stored.size} bytes, {stored.lag} records behind"
                )
            elif stored.partition.topic == topic:
                typer.echo(f"\t{stored.partition}\t{stored.size} bytes")


def _line(found: "LogDir") -> str:
    head = f"Broker: {found.broker}\tDirectory: {found.path}"
    if found.error is not Code.NONE:
        return f"{head}\toffline"
    here = [stored for stored in found.partitions if not stored.is_future]
    size = sum(stored.size for stored in here)
    return f"{head}\tPartitions: {len(here)}\tBytes: {size}\tFree: {found.usable}"


@ends_well
def move(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC:PARTITION...", help="Which replicas.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIR", help="A directory of the broker's log.dirs.")
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(
            "--broker", metavar="ID", help="Whose replicas; need not be said if there is one broker."
        ),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Let them stay where they are.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they are there.")] = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Move replicas of a broker to another of its data directories, while they are written and read.

    Ctrl-C ends the waiting, not the moves. replica.alter.log.dirs.io.max.bytes.per.second limits them.

    \b
    barnabas log move orders:0 orders:3 --broker 1 --to /disk2/barnabas
    barnabas log move orders:3 --broker 1 --cancel
    """
    if (to is None) is not cancel:
        raise WrongUsage("Say where to (--to DIR), or --cancel.")
    wanted = [_partition(name) for name in names]
    with admin_of(bootstrap, zookeeper) as admin:
        of = broker if broker is not None else _only_broker(admin)
        _check_known(admin, of)
        found = admin.describe_log_dirs([of])
        if to is None:
            admin.alter_replica_log_dirs(of, _as_they_are(of, found, wanted))
            typer.echo(f"{counted(len(wanted), 'replica')} of broker {of}: no move any more.")
            return
        path = _directory(of, found, to)
        admin.alter_replica_log_dirs(of, dict.fromkeys(wanted, path))
        if not wait:
            typer.echo(f"{counted(len(wanted), 'replica')} on the way to {path}.")
            return
        _wait(admin, of, path, wanted)
    typer.echo(f"Moved {counted(len(wanted), 'replica')} of broker {of} to {path}.")


def _partition(name: str) -> TopicPartition:
    topic, colon, number = name.rpartition(":")
    if not colon or not topic or not number.isdigit():
        raise WrongUsage(f"A partition is named TOPIC:NUMBER, not {name!r}.")
    return TopicPartition(topic, int(number))


def _only_broker(admin: "Admin") -> int:
    brokers = admin.describe_cluster().brokers
    if len(brokers) != 1:
        raise WrongUsage("There are several brokers: say whose replicas with --broker.")
    return brokers[0].id


def _check_known(admin: "Admin", broker: int) -> None:
    """Refuse a number that no broker has at once: later on, one that is not there may be starting again."""
    if broker not in [each.id for each in admin.describe_cluster().brokers]:
        raise BarnabasError(f"There is no broker {broker} in the cluster.")


def _directory(broker: int, found: "Sequence[LogDir]", path: str) -> str:
    """The directory as the broker names it."""
    known = [each.path for each in found]
    for candidate in (os.path.normpath(path), os.path.abspath(path)):
        if candidate in known:
            return candidate
    raise BarnabasError(f"Broker {broker} has no data directory {path}: it has {', '.join(known)}.")


def _as_they_are(
    broker: int, found: "Sequence[LogDir]", wanted: list[TopicPartition]
) -> dict[TopicPartition, str]:
    homes = {
        stored.partition: each.path for each in found for stored in each.partitions if not stored.is_future
    }
    for tp in wanted:
        if tp not in homes:
            raise BarnabasError(f"Broker {broker} has no replica of {tp}.")
    return {tp: homes[tp] for tp in wanted}


def _wait(admin: "Admin", broker: int, path: str, wanted: list[TopicPartition]) -> None:
    """Come back when all are there. What is not there and not on its way was cancelled, or has failed."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    pause = threading.Event()
    columns = (TextColumn("moving"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("moving", total=None)
        while True:
            found = admin.describe_log_dirs([broker])
            here, coming = _in_directory(found, path)
            left = [tp for tp in wanted if tp not in here]
            if not left:
                return
            lost = [tp for tp in left if tp not in coming]
            if lost:
                fail(
                    f"{lost[0]} did not get to {path}: the move was cancelled, or the broker's log says why."
                )
            sizes = {
                row.partition: row.size for each in found for row in each.partitions if not row.is_future
            }
            done = sum(coming[tp].size if tp in coming else sizes.get(tp, 0) for tp in wanted)
            progress.update(task, total=sum(sizes.get(tp, 0) for tp in wanted), completed=done)
            pause.wait(_LOOK_S)


def _in_directory(
    found: "Sequence[LogDir]", path: str
) -> "tuple[set[TopicPartition], Mapping[TopicPartition, StoredPartition]]":
    rows = [stored for each in found if each.path == path for stored in each.partitions]
    return (
        {row.partition for row in rows if not row.is_future},
        {row.partition: row for row in rows if row.is_future},
    )
