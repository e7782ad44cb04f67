"""`barnabas group list|describe|delete|reset`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.exits import ends_well
from barnabas.cli.moments import moment
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.groups import GroupDescription, MemberDescription

app = typer.Typer(
    help="List, describe and delete consumer groups, and move where they read.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
_NOTHING = "-"


def _admin(bootstrap: str) -> "Admin":
    from barnabas.client.admin import Admin

    return Admin(bootstrap, client_id="barnabas-cli")


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
) -> None:
    """Print the ids of all groups, one a line.

    \b
    barnabas group list --state Empty
    """
    with _admin(bootstrap) as admin:
        found = admin.list_groups(states=state or (), types=type or ())
    if not verbose:
        for each in found:
            typer.echo(each.id)
        return
    rows = [(each.id, each.type, each.state, each.protocol_type) for each in found]
    _table([("GROUP", "TYPE", "STATE", "PROTOCOL"), *rows])


@app.command()
@ends_well
def describe(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Which groups.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print a group's state, its members, what it has read of each partition, and how far behind it is.

    \b
    barnabas group describe billing
    """
    with _admin(bootstrap) as admin:
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
    committed = admin.committed_offsets(group.id)
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
        _table(rows)


def _ends(admin: "Admin", partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the logs end, of topics that still exist."""
    from barnabas.client.offsets import LATEST

    topics: dict[str, list[TopicPartition]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each)
    found: dict[TopicPartition, int] = {}
    for wanted in topics.values():
        try:
            answers = admin.list_offsets(dict.fromkeys(wanted, LATEST))
        except Refused as error:
            if error.code is not Code.UNKNOWN_TOPIC_OR_PARTITION:
                raise
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
        _table(rows)


@app.command()
@ends_well
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="What to delete, for good.")],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Be content if there is none.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups that have no members, and what they have committed.

    \b
    barnabas group delete billing
    """
    with _admin(bootstrap) as admin:
        for name in names:
            try:
                admin.delete_group(name)
            except Refused as error:
                if not (if_exists and error.code is Code.GROUP_ID_NOT_FOUND):
                    raise
            else:
                typer.echo(f"Deleted group {name}.")


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
) -> None:
    """Move where a group goes on reading. Its members must have left. Shows what would happen unless told to do it.

    \b
    barnabas group reset billing --topic orders --to earliest
    barnabas group reset billing --topic orders:0,3 --to 1h --execute
    barnabas group reset billing --topic orders --shift-by -100 --execute
    """
    if (to is None) == (shift_by is None):
        raise BarnabasError("Say where to: either --to or --shift-by.")
    with _admin(bootstrap) as admin:
        wanted = _partitions(admin, topic)
        _need_nobody(admin, name)
        current = admin.committed_offsets(name, wanted)
        new = _limited(admin, _moved(admin, current, wanted, to, shift_by))
        rows = [(p.topic, str(p.partition), _shown(current.get(p)), str(new[p])) for p in wanted]
        _table([("TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), *rows])
        if execute:
            admin.alter_offsets(name, new)
    if not execute:
        typer.echo("Nothing is changed yet: add --execute to do it.", err=True)


def _partitions(admin: "Admin", topics: Iterable[str]) -> list[TopicPartition]:
    """What T or T:0,3 names."""
    wanted: set[TopicPartition] = set()
    for text in topics:
        name, colon, numbers = text.partition(":")
        count = len(admin.describe_topics([name])[0].partitions)
        if colon and not re.fullmatch(r"\d+(,\d+)*", numbers):
            raise BarnabasError(f"--topic takes T or T:0,3, not {text!r}.")
        chosen = set(map(int, numbers.split(","))) if colon else set(range(count))
        if chosen and max(chosen) >= count:
            raise BarnabasError(f"Topic {name!r} has no partition {max(chosen)}, only {count}.")
        wanted |= {TopicPartition(name, number) for number in chosen}
    return sorted(wanted)


def _need_nobody(admin: "Admin", name: str) -> None:
    """A group that is not there yet can be given offsets too."""
    try:
        group = admin.describe_group(name)
    except Refused as error:
        if error.code is not Code.GROUP_ID_NOT_FOUND:
            raise
        return
    if group.members:
        raise BarnabasError(
            f"Group {name!r} is {group.state}, its members ({len(group.members)}) are reading: stop them, then reset."
        )


def _moved(
    admin: "Admin",
    current: Mapping[TopicPartition, int],
    wanted: list[TopicPartition],
    to: str | None,
    shift_by: int | None,
) -> dict[TopicPartition, int]:
    from barnabas.client.offsets import EARLIEST, LATEST

    if shift_by is not None:
        for each in wanted:
            if each not in current:
                raise BarnabasError(f"Partition {each} has no committed offset to be shifted: say --to.")
        return {each: current[each] + shift_by for each in wanted}
    assert to is not None
    if re.fullmatch(r"\d+", to):
        return dict.fromkeys(wanted, int(to))
    where = {"earliest": EARLIEST, "latest": LATEST}.get(to)
    found = admin.list_offsets(dict.fromkeys(wanted, moment(to) if where is None else where))
    late = [each for each in wanted if found[each].offset < 0]
    ends = admin.list_offsets(dict.fromkeys(late, LATEST)) if late else {}
    return {each: ends.get(each, found[each]).offset for each in wanted}


def _limited(admin: "Admin", offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """No offset before a log's start or behind its end."""
    from barnabas.client.offsets import EARLIEST, LATEST

    starts = admin.list_offsets(dict.fromkeys(offsets, EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(offsets, LATEST))
    return {each: min(max(at, starts[each].offset), ends[each].offset) for each, at in offsets.items()}


def _shown(number: int | None) -> str:
    return _NOTHING if number is None else str(number)


def _table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as they need to be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
