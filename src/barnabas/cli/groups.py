"""`barnabas group list|describe|delete|reset`."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.exits import WrongUsage, ends_well
from barnabas.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    IfExists,
    InZooKeeper,
    admin_of,
    delete_each,
    print_table,
)
from barnabas.cli.time_option import moment
from barnabas.errors import UnknownTopicOrPartition
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.groups import GroupDescription, MemberDescription

app = typer.Typer(
    help="List, describe and delete consumer groups, and move where they read.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
_NOTHING = "-"


@app.command("list")
@ends_well
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only groups in this state, as Stable; several times."),
    ] = None,
    type: Annotated[  # noqa: A002
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only groups of this type: classic, consumer."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Their types, states and protocols too.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Print the ids of all groups, one a line.

    \b
    barnabas group list --state Empty
    """
    with admin_of(bootstrap, zookeeper) as admin:
        found = admin.list_groups(states=state or (), types=type or ())
    if not verbose:
        for each in found:
            typer.echo(each.id)
        return
    rows = [(each.id, each.type, each.state, each.protocol_type) for each in found]
    print_table([("GROUP", "TYPE", "STATE", "PROTOCOL"), *rows])


@app.command()
@ends_well
def describe(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Which groups.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Print a group's state, its members, what it has read of each partition, and how far behind it is.

    \b
    barnabas group describe billing
    """
    with admin_of(bootstrap, zookeeper) as admin:
        for place, name in enumerate(names):
            if place:
                typer.echo()
            group = admin.describe_group(name)
            _print_head(group)
            _print_partitions(admin, group)
            _print_members(group)


def _print_head(group: "GroupDescription") -> None:
    typer.echo(
        f"Group: {group.id}\tState: {group.state}\tType: {group.type}\tAssignor: {group.assignor or _NOTHING}\t"
        f"Coordinator: {group.coordinator}\tMembers: {len(group.members)}"
    )


def _print_partitions(admin: "Admin", group: "GroupDescription") -> None:
    committed = admin.list_group_offsets(group.id)
    owners: dict[TopicPartition, MemberDescription] = {
        partition: member for member in group.members for partition in member.partitions
    }
    wanted = sorted({*committed, *owners})
    ends = _ends(admin, wanted)
    rows = [("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")]
    for each in wanted:
        at, end, owner = committed.get(each), ends.get(each), owners.get(each)
        lag = None if at is None or end is None else max(end - at, 0)
        rows.append(
            (
                each.topic,
                str(each.partition),
                _shown(at),
                _shown(end),
                _shown(lag),
                owner.id if owner else _NOTHING,
            )
        )
    if wanted:
        typer.echo()
        print_table(rows)


def _ends(admin: "Admin", partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the logs end, of topics that still exist."""
    from barnabas.client.consumer.offsets import LATEST

    topics: dict[str, list[TopicPartition]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each)
    found: dict[TopicPartition, int] = {}
    for wanted in topics.values():
        try:
            answers = admin.list_offsets(dict.fromkeys(wanted, LATEST))
        except UnknownTopicOrPartition:
            continue
        found |= {partition: at.offset for partition, at in answers.items()}
    return found


def _print_members(group: "GroupDescription") -> None:
    rows = [("CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "PARTITIONS", "ASSIGNMENT")]
    for each in group.members:
        topics: dict[str, list[int]] = {}
        for topic, number in each.partitions:
            topics.setdefault(topic, []).append(number)
        assigned = " ".join(
            f"{topic}:{','.join(map(str, sorted(topics[topic])))}" for topic in sorted(topics)
        )
        rows.append(
            (
                each.id,
                each.instance_id or _NOTHING,
                each.host,
                each.client_id,
                str(len(each.partitions)),
                assigned or _NOTHING,
            )
        )
    if group.members:
        typer.echo()
        print_table(rows)


@app.command()
@ends_well
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="What to delete, for good.")],
    if_exists: IfExists = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Delete groups that have no members, and what they have committed.

    \b
    barnabas group delete billing
    """
    with admin_of(bootstrap, zookeeper) as admin:
        delete_each("group", names, admin.delete_group, if_exists)


@app.command()
@ends_well
def reset(
    name: Name,
    topic: Annotated[
        list[str], typer.Option("--topic", metavar="T[:P,...]", help="What to move in; several times.")
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, an offset, a time as 2026-01-31T12:00, or 10m for 10 minutes ago.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="N records on, or back if N is negative.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without this it is only shown.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Move where a group goes on reading. Its members must have left. Shows what would happen unless told to do it.

    \b
    barnabas group reset billing --topic orders --to earliest
    barnabas group reset billing --topic orders:0,3 --to 1h --execute
    barnabas group reset billing --topic orders --shift-by -100 --execute
    """
    if (to is None) == (shift_by is None):
        raise WrongUsage("Say where to: either --to or --shift-by.")
    where, target = _named(topic), _target(to, shift_by)
    with admin_of(bootstrap, zookeeper) as admin:
        moved = admin.reset_group_offsets(name, where, validate_only=not execute, **target)
    rows = [(p.topic, str(p.partition), _shown(at.before), str(at.after)) for p, at in moved.items()]
    print_table([("TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), *rows])
    if not execute:
        typer.echo("Nothing is changed yet: add --execute to do it.", err=True)


def _named(topics: Iterable[str]) -> list[str | TopicPartition]:
    """What T or T:0,3 names."""
    wanted: list[str | TopicPartition] = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        if colon and not re.fullmatch(r"\d+(,\d+)*", numbers):
            raise WrongUsage(f"--topic takes T or T:0,3, not {text!r}.")
        wanted += [TopicPartition(name, int(number)) for number in numbers.split(",")] if colon else [name]
    return wanted


def _target(to: str | None, shift_by: int | None) -> dict[str, int]:
    """--to and --shift-by, as Admin's arguments."""
    from barnabas.client.consumer.offsets import EARLIEST, LATEST

    if to is None:
        return {} if shift_by is None else {"shift_by": shift_by}
    if re.fullmatch(r"\d+", to):
        return {"to_offset": int(to)}
    where = {"earliest": EARLIEST, "latest": LATEST}.get(to)
    try:
        return {"to": moment(to) if where is None else where}
    except WrongUsage:
        # Not as where only a time is wanted: milliseconds would be taken for an offset.
        ways = "earliest, latest, an offset, a time as 2026-01-31T12:00, or 10m for 10 minutes ago"
        raise WrongUsage(f"--to takes {ways}, not {to!r}.") from None


def _shown(number: int | None) -> str:
    return _NOTHING if number is None else str(number)
