"""`barnabas reassign plan|run|status|cancel`: partitions move to other brokers while they are written and read."""

import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.exits import FAILED, WrongUsage, ends_well, fail
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, InZooKeeper, admin_of
from barnabas.errors import BarnabasError, counted
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.placement import Reassignment
    from barnabas.client.admin.plans import Plan
    from barnabas.client.admin.throttles import Lifted

app = typer.Typer(help="Move partitions to other brokers.", no_args_is_help=True, rich_markup_mode=None)

_LOOK_S = 0.3

PlanFile = Annotated[
    str,
    typer.Argument(metavar="PLAN.json", help="A plan as kafka-reassign-partitions has it; - reads stdin."),
]


@app.command()
@ends_well
def plan(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Which topics; all if none is given.")
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(
            "--brokers", metavar="ID,ID,...", help="The brokers to use; all that live if not given."
        ),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option("--without", metavar="ID,...", help="Brokers that are to have nothing any more."),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", min=1, help="Another number of replicas.")
    ] = None,
    current: Annotated[bool, typer.Option("--current", help="Print how things are: the way back.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Print a plan that spreads partitions evenly over brokers and racks; what may stay stays.

    \b
    barnabas reassign plan --current > before.json
    barnabas reassign plan --brokers 1,2,3,4 > plan.json
    barnabas reassign plan --without 2 > plan.json
    """
    from barnabas.client.admin.plans import check_brokers, moved, plan_text, spread

    with admin_of(bootstrap, zookeeper) as admin:
        found = _current(admin, topics)
        alive: dict[int, str | None] = {broker.id: broker.rack for broker in admin.describe_cluster().brokers}
    if current:
        typer.echo(plan_text(found))
        return
    if not found:
        raise BarnabasError("There is no partition to plan for.")
    chosen = _ids(brokers, "--brokers") if brokers is not None else sorted(alive)
    gone = _ids(without, "--without") if without is not None else []
    check_brokers({next(iter(found)): chosen}, alive)
    # One that has died for good has to be named here, too: it may still have replicas.
    known = {*alive}.union(*found.values())
    for broker in gone:
        if broker not in known:
            there = ", ".join(map(str, sorted(known)))
            raise BarnabasError(
                f"--without names broker {broker}, which is not in the cluster ({there} are)."
            )
    targets = {broker: alive[broker] for broker in chosen if broker not in gone}
    wanted = spread(found, targets, replication_factor)
    changes = moved(found, wanted)
    typer.echo(plan_text(wanted))
    typer.echo(f"{len(changes)} of {counted(len(found), 'partition')} change.", err=True)


@app.command()
@ends_well
def run(
    file: PlanFile,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle",
            metavar="BYTES/S",
            min=1,
            help="How fast each broker may copy, until all is done. Given again: another rate for moves under way.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all is done.")] = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Carry out a plan, and show how far it is. Ctrl-C ends the waiting, not the moves.

    \b
    barnabas reassign run plan.json --throttle 50000000
    """
    from barnabas.client.admin.plans import check_brokers, moved

    wanted = _read(file)
    with admin_of(bootstrap, zookeeper) as admin:
        check_brokers(wanted, [broker.id for broker in admin.describe_cluster().brokers])
        changes = moved(_current(admin, sorted({tp.topic for tp in wanted})), wanted)
        moves = changes | {
            tp: wanted[tp] for tp in admin.list_reassignments(list(wanted)) if tp not in changes
        }
        if not moves:
            typer.echo("All partitions are where the plan wants them.")
            return
        try:
            if throttle is not None:
                admin.throttle_reassignments(moves, throttle)
            admin.alter_reassignments(changes)
        except BarnabasError:
            if throttle is not None:
                _lift(admin, moves)
            raise
        if wait:
            _wait(admin, moves, throttle, file)
    if wait:
        typer.echo(f"Moved {counted(len(moves), 'partition')}.")
    else:
        typer.echo(f"On the way: {counted(len(moves), 'partition')}{_at_most(throttle)}.")
        if throttle is not None:
            typer.echo(_stays(file))


@app.command()
@ends_well
def status(
    file: Annotated[str | None, typer.Argument(metavar="[PLAN.json]", help="Compare with a plan.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Print the moves under way; with a plan, what of it is done. Ends with 1 while something is not.

    When the plan is carried out and nothing else moves, the throttle that it was run with is taken off.

    \b
    barnabas reassign status plan.json
    """
    wanted = None if file is None else _read(file)
    with admin_of(bootstrap, zookeeper) as admin:
        moving = admin.list_reassignments(None if wanted is None else list(wanted))
        now = {} if wanted is None else _current(admin, sorted({tp.topic for tp in wanted}))
        for tp, move in sorted(moving.items()):
            typer.echo(_line(tp, move))
        different = [tp for tp, replicas in (wanted or {}).items() if list(now.get(tp, ())) != list(replicas)]
        others = sorted(tp for tp in different if tp not in moving)
        for tp in others:
            typer.echo(f"{tp}\tis on {_numbers(now.get(tp, ()))}, and nothing moves it")
        is_done = not moving and not others
        if is_done:
            typer.echo("No partition is being moved." if wanted is None else "The plan is carried out.")
        if wanted is not None and not moving:
            _lift_and_tell(admin, wanted)
        for rate, brokers in _throttles(admin):
            typer.echo(
                f"Copies go{_at_most(rate)} at {counted(len(brokers), 'broker')}: {_numbers(brokers)}."
            )
    if not is_done:
        sys.exit(FAILED)


@app.command()
@ends_well
def cancel(
    file: Annotated[
        str | None, typer.Argument(metavar="[PLAN.json]", help="The plan; all moves if not given.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Put partitions that are being moved back to where they were, and take their throttle off.

    \b
    barnabas reassign cancel plan.json
    """
    wanted = None if file is None else _read(file)
    with admin_of(bootstrap, zookeeper) as admin:
        moving = admin.list_reassignments(None if wanted is None else list(wanted))
        admin.cancel_reassignments(list(moving))
        if moving:
            typer.echo(f"Cancelled the moves of {counted(len(moving), 'partition')}.")
        else:
            typer.echo("No partition is being moved.")
        _lift_and_tell(admin, wanted or moving)


def _current(admin: "Admin", topics: list[str] | None) -> dict[TopicPartition, list[int]]:
    moving = admin.list_reassignments()
    found = {}
    for topic in admin.describe_topics(topics or None):
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.index)
            going = moving[tp].removing if tp in moving else ()
            found[tp] = [int(broker) for broker in each.replicas if broker not in going]
    return found


def _wait(admin: "Admin", changes: "Plan", throttle: int | None, file: str) -> None:
    """Come back when all is done. What is not done and not under way was cancelled, or its broker is gone."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    pause = threading.Event()
    columns = (
        TextColumn(f"moving{_at_most(throttle)}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task("moving", total=len(changes))
            while moving := admin.list_reassignments(list(changes)):
                progress.update(task, completed=len(changes) - len(moving))
                pause.wait(_LOOK_S)
            progress.update(task, completed=len(changes))
    except KeyboardInterrupt:
        if throttle is not None:
            typer.echo(_stays(file), err=True)
        raise
    if throttle is not None:
        _lift(admin, changes)
    now = _current(admin, sorted({tp.topic for tp in changes}))
    left = [tp for tp, replicas in changes.items() if list(now.get(tp, ())) != list(replicas)]
    if left:
        fail(
            f"{counted(len(left), 'partition')} did not get there, {left[0]} for one: the move was cancelled."
        )


def _lift_and_tell(admin: "Admin", partitions: Iterable[TopicPartition]) -> None:
    lifted = _lift(admin, partitions)
    if not lifted:
        return
    typer.echo("The throttle is taken off.")
    if lifted.missed:
        typer.echo(
            f"Not there to hear of it: {counted(len(lifted.missed), 'broker')}, {_numbers(lifted.missed)}. A rate left "
            "there holds nothing back, and `barnabas reassign status PLAN.json` takes it off later."
        )


def _lift(admin: "Admin", partitions: Iterable[TopicPartition]) -> "Lifted | None":
    """Take throttles off, unless something else still moves; true if there were any."""
    if admin.list_reassignments():
        return None
    return admin.lift_throttle(sorted({tp.topic for tp in partitions}))


def _throttles(admin: "Admin") -> list[tuple[int, list[int]]]:
    """The rates that are set, each with its brokers."""
    rates = admin.list_throttles()
    return [
        (rate, [broker for broker in rates if rates[broker] == rate]) for rate in sorted({*rates.values()})
    ]


def _at_most(rate: int | None) -> str:
    return "" if rate is None else f" at {rate:,} bytes a second at the most"


def _stays(file: str) -> str:
    return f"The throttle stays until `barnabas reassign status {file}` finds all of it done."


def _read(file: str) -> dict[TopicPartition, list[int]]:
    from barnabas.client.admin.plans import read_plan

    try:
        if file == "-":
            return read_plan(sys.stdin.read())
        with open(file, encoding="utf-8") as plan:
            return read_plan(plan.read())
    except OSError as error:
        raise BarnabasError(f"Cannot read {file}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BarnabasError(f"Cannot read {file}: it is not UTF-8 text.") from None


def _line(tp: TopicPartition, move: "Reassignment") -> str:
    parts = [f"{tp}\tis on {_numbers(move.replicas)}"]
    if move.adding:
        parts.append(f"comes to {_numbers(move.adding)}")
    if move.removing:
        parts.append(f"leaves {_numbers(move.removing)}")
    return ", ".join(parts)


def _numbers(brokers: "tuple[int, ...] | list[int]") -> str:
    return ",".join(map(str, brokers)) or "no broker"


def _ids(text: str, option: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise WrongUsage(f"{option} takes numbers of brokers, like 1,2,3, not {text!r}.")
    found = [int(part) for part in parts]
    if len(set(found)) != len(found):
        raise WrongUsage(f"{option} names a broker twice: {text!r}.")
    return found
