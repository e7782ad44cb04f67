"""What many commands share: options, declared once, and the table they print. Used by every command family."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from barnabas.cli.exits import WrongUsage, try_each

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin

Bootstrap: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        envvar="BARNABAS_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="The broker to talk to.",
    ),
]
DEFAULT_BOOTSTRAP = "localhost:9092"

InZooKeeper: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT,.../CHROOT",
        help="Find the brokers in this ZooKeeper, in place of --bootstrap.",
    ),
]

Configs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="NAME=VALUE", help="A setting of the topic; can be given several times."
    ),
]

Properties: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--command-property",
        "-X",
        metavar="NAME=VALUE",
        help="A setting of the client, by Kafka's name: linger.ms=50; several times.",
    ),
]

Master: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--master",
        help="Where Spark runs: local[2] (all cores without), spark://HOST:7077, yarn, k8s://HOST:6443.",
    ),
]
SparkSettings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; several times."),
]

IfExists: TypeAlias = Annotated[bool, typer.Option("--if-exists", help="Be content if there is none.")]


def admin_of(bootstrap: str, zookeeper: str | None = None, **settings: int) -> "Admin":
    """The client that looks after a cluster; loaded only by commands that need it."""
    from barnabas.client.admin.admin import Admin

    return Admin(bootstrap_of(bootstrap, zookeeper), client_id="barnabas-cli", **settings)


def bootstrap_of(bootstrap: str, zookeeper: str | None) -> str:
    """Where brokers are: as told, or as ZooKeeper tells."""
    if zookeeper is None:
        return bootstrap
    from barnabas.cli.registered import registered_brokers

    return registered_brokers(zookeeper)


def delete_each(what: str, names: Iterable[str], delete: Callable[[str], None], if_exists: bool) -> None:
    """Delete topics or groups one after the other, and say of each what became of it."""
    from barnabas.errors import GroupIdNotFound, UnknownTopicOrPartition

    def delete_one(name: str) -> None:
        try:
            delete(name)
        except (GroupIdNotFound, UnknownTopicOrPartition):
            if not if_exists:
                raise
        else:
            typer.echo(f"Deleted {what} {name}.")

    try_each(names, delete_one)


def pairs(settings: list[str] | None, option: str) -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    found: dict[str, str] = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise WrongUsage(f"{option} takes NAME=VALUE, not {setting!r}.")
        found[name.strip()] = value
    return found


def client_settings(declared: type, given: list[str] | None) -> dict[str, Any]:
    """Settings of a client from NAME=VALUE, read by the types that it declares."""
    from barnabas.client.declared import reader_of

    settings: dict[str, Any] = {}
    for each in given or []:
        name, equals, text = each.partition("=")
        setting = name.strip().replace(".", "_")
        if not equals:
            raise WrongUsage(f"--command-property takes NAME=VALUE, not {each!r}.")
        if setting not in declared.__annotations__:
            from difflib import get_close_matches

            known = sorted(known.replace("_", ".") for known in declared.__annotations__)
            near = get_close_matches(name.strip().replace("_", "."), known, n=1, cutoff=0.5)
            raise WrongUsage(
                f"There is no setting {name!r}" + (f": did you mean {near[0]}?" if near else ".")
            )
        try:
            settings[setting] = reader_of(declared, setting)(text)
        except ValueError:
            raise WrongUsage(f"{name} cannot be {text!r}.") from None
    return settings


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as they need to be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
