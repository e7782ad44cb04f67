"""`barnabas cluster describe|watch|wait`: brokers, what each of them has, and what is wrong."""

import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.exits import ends_well
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, InZooKeeper, admin_of, bootstrap_of
from barnabas.errors import BarnabasError, Code, counted

if TYPE_CHECKING:
    from rich.console import Group

    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.health import ClusterView

app = typer.Typer(help="Show brokers, and what is wrong.", no_args_is_help=True, rich_markup_mode=None)

_PATIENT_MS, _BRISK_MS = 5_000, 2_000
"""How long one broker is waited for: one that stands still must not hide what the others say."""

_FACTOR = 1024
LEAST_ROOM = 16 << 20
"""A broker takes a directory with less for full."""
_UNITS = ("KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class _BrokerRow:
    """A broker and what it has."""

    id: int
    address: str
    rack: str
    leaders: int
    replicas: int
    bytes: int | None
    """None where it does not answer."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A cluster at one moment."""

    id: str
    view: "ClusterView"
    brokers: list[_BrokerRow]
    troubles: list[str]


@app.command()
@ends_well
def describe(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, zookeeper: InZooKeeper = None) -> None:
    """Print brokers with their racks, leaders, replicas and bytes, the controller, and a line for all that is wrong.

    \b
    barnabas cluster describe
    """
    _print(_look_by_any(bootstrap_of(bootstrap, zookeeper)))


@app.command()
@ends_well
def watch(
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, help="How often to look.")
    ] = 1.0,
    count: Annotated[
        int | None,
        typer.Option("--count", metavar="N", min=1, help="End after this many looks.", hidden=True),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Show the same live, until Ctrl-C.

    \b
    barnabas cluster watch --every 0.5
    """
    from rich.live import Live

    pause = threading.Event()
    looks = 0
    with (
        admin_of(bootstrap, zookeeper, request_timeout_ms=_BRISK_MS) as admin,
        Live(auto_refresh=False) as live,
    ):
        try:
            while count is None or looks < count:
                live.update(_shown(admin), refresh=True)
                looks += 1
                pause.wait(every)
        except KeyboardInterrupt:
            return


@app.command("wait")
@ends_well
def wait_for(
    brokers: Annotated[
        int, typer.Option("--brokers", metavar="N", min=1, help="How many brokers there have to be at least.")
    ] = 1,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait at most.")
    ] = 60.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Wait until all brokers agree that every partition has a leader and its full ISR; fails if that takes too long.

    \b
    barnabas cluster wait --brokers 3
    """
    from barnabas.processes.cluster import wait_until_in_sync

    wait_until_in_sync(bootstrap_of(bootstrap, zookeeper), (), timeout, count=brokers)
    typer.echo("in sync")


def _shown(admin: "Admin") -> "Group":
    """A table; or a sentence while the cluster does not answer, which is when it is watched most."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    try:
        seen = _look(admin)
    except BarnabasError as error:
        return Group(Text(str(error), style="red"))
    table = Table("Broker", "Address", "Rack", "Leaders", "Replicas", "Bytes")
    for row in seen.brokers:
        is_controller = row.id == seen.view.controller
        size = "?" if row.bytes is None else _readable(row.bytes)
        name = f"{row.id} (controller)" if is_controller else str(row.id)
        table.add_row(name, row.address, row.rack, str(row.leaders), str(row.replicas), size)
    troubles = [Text(each, style="red") for each in seen.troubles] or [Text("All is well.", style="green")]
    return Group(Text(_short_head(seen), style="bold"), table, *troubles)


def _look_by_any(bootstrap: str) -> _Seen:
    """Ask the brokers together, then one by one: the question may have gone to one that stands still."""
    failures: list[BarnabasError] = []
    for addresses in dict.fromkeys((bootstrap, *bootstrap.split(","))):
        try:
            with admin_of(addresses, request_timeout_ms=_PATIENT_MS) as admin:
                return _look(admin)
        except BarnabasError as error:
            failures.append(error)
    raise failures[0]


def _look(admin: "Admin") -> _Seen:
    view = admin.view_of_topics()
    leaders = Counter(partition.leader for _, partition in view.partitions())
    replicas = Counter(broker for _, partition in view.partitions() for broker in partition.replicas)
    troubles = view.troubles()
    rows = []
    for broker in view.brokers:
        size, lines = _stored(admin, broker.id)
        troubles += lines
        rows.append(
            _BrokerRow(
                broker.id,
                str(broker.address),
                broker.rack or "-",
                leaders[broker.id],
                replicas[broker.id],
                size,
            )
        )
    moving = sum(bool(adding) for adding in view.adding.values())
    if moving:
        troubles.append(
            f"{counted(moving, 'partition')} on the way to other brokers: barnabas reassign status."
        )
    badly_led = sum(view.is_badly_led(tp, partition) for tp, partition in view.partitions())
    if badly_led:
        troubles.append(
            f"{counted(badly_led, 'partition')} led by another than the preferred replica: barnabas elect."
        )
    return _Seen(admin.describe_cluster().id, view, rows, troubles)


def _stored(admin: "Admin", broker: int) -> tuple[int | None, list[str]]:
    """The bytes that a broker has, and what is wrong with its directories."""
    try:
        directories = admin.describe_log_dirs([broker])
    except BarnabasError as error:
        return None, [f"Broker {broker} does not answer: {error}"]
    offline = [each.path for each in directories if each.error is not Code.NONE]
    lines = [f"Broker {broker} has lost its data directory {path}." for path in offline]
    full = [each for each in directories if 0 <= each.usable < LEAST_ROOM]
    lines += [f"Broker {broker} has no room in {each.path}: {_readable(each.usable)} free." for each in full]
    return sum(partition.size for each in directories for partition in each.partitions), lines


def _print(seen: _Seen) -> None:
    typer.echo(_head(seen))
    for row in seen.brokers:
        size = "?" if row.bytes is None else str(row.bytes)
        typer.echo(
            f"\tBroker: {row.id}\tAddress: {row.address}\tRack: {row.rack}\tLeaders: {row.leaders}\t"
            f"Replicas: {row.replicas}\tBytes: {size}"
        )
    for line in seen.troubles or ["All is well."]:
        typer.echo(line)


def _head(seen: _Seen) -> str:
    partitions = sum(len(topic.partitions) for topic in seen.view.topics)
    controller = str(seen.view.controller) if seen.view.controller >= 0 else "none"
    return (
        f"Cluster: {seen.id}\tController: {controller}\tBrokers: {len(seen.brokers)}\t"
        f"Topics: {len(seen.view.topics)}\tPartitions: {partitions}"
    )


def _short_head(seen: _Seen) -> str:
    """The same in a line of 80 characters; the controller is marked in the table."""
    partitions = sum(len(topic.partitions) for topic in seen.view.topics)
    counts = (
        counted(len(seen.brokers), "broker"),
        counted(len(seen.view.topics), "topic"),
        counted(partitions, "partition"),
    )
    return f"Cluster {seen.id}: {', '.join(counts)}"


def _readable(size: int) -> str:
    if size < _FACTOR:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / _FACTOR**power:.1f} {_UNITS[power - 1]}"
