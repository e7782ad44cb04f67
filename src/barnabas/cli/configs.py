"""`barnabas config describe|set`: the settings of topics and brokers."""

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.exits import WrongUsage, ends_well
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, InZooKeeper, admin_of, pairs

if TYPE_CHECKING:
    from barnabas.client.admin.configs import Config, Resource

app = typer.Typer(help="Show and change settings.", no_args_is_help=True, rich_markup_mode=None)

OfTopic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="The topic whose settings they are.")
]
OfBroker = Annotated[
    int | None, typer.Option("--broker", metavar="ID", help="The broker whose settings they are.")
]
OfBrokers = Annotated[bool, typer.Option("--broker-defaults", help="The settings all brokers share.")]


def _resource(topic: str | None, broker: int | None, broker_defaults: bool) -> "Resource":
    from barnabas.client.admin.configs import Resource

    if (topic is not None) + (broker is not None) + broker_defaults != 1:
        raise WrongUsage("Say which settings are meant: --topic, --broker or --broker-defaults.")
    if topic is not None:
        return Resource.topic(topic)
    return Resource.broker(broker)


@app.command()
@ends_well
def describe(
    topic: OfTopic = None,
    broker: OfBroker = None,
    broker_defaults: OfBrokers = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that have their default value.")
    ] = False,
    docs: Annotated[bool, typer.Option("--docs", help="Also what each setting means.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Print settings with where they come from: name, value and source, parted by tabs.

    \b
    barnabas config describe --topic orders --all
    barnabas config describe --broker 0 --docs
    """
    with admin_of(bootstrap, zookeeper) as admin:
        found = admin.describe_configs(_resource(topic, broker, broker_defaults), documentation=docs)
    _print([each for each in found if everything or docs or not each.is_default], docs)


def _print(found: "list[Config]", docs: bool) -> None:
    import sys

    if sys.stdout is not None and sys.stdout.isatty():
        _print_table(found, docs)
        return
    for each in found:
        row = [each.name, _shown(each), each.source.name]
        if docs:
            row.append(each.documentation or "")
        typer.echo("\t".join(row))


def _print_table(found: "list[Config]", docs: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("Name", "Value", "Source", *(["Meaning"] if docs else []))
    for each in found:
        table.add_row(
            each.name, _shown(each), each.source.name, *([each.documentation or ""] if docs else [])
        )
    Console().print(table)


def _shown(config: "Config") -> str:
    if config.sensitive:
        return "(hidden)"
    return "(none)" if config.value is None else config.value


@app.command("set")
@ends_well
def set_configs(
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="The settings to change.")
    ] = None,
    topic: OfTopic = None,
    broker: OfBroker = None,
    broker_defaults: OfBrokers = False,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="NAME", help="Put a setting back to its default; several times."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: InZooKeeper = None,
) -> None:
    """Change settings and leave all others as they are.

    \b
    barnabas config set --topic orders retention.ms=3600000 compression.type=zstd
    barnabas config set --topic orders --delete retention.ms
    """
    changes: dict[str, str | None] = dict(pairs(settings, "config set"))
    changes |= dict.fromkeys(delete or [])
    if not changes:
        raise WrongUsage("There is nothing to change: give NAME=VALUE or --delete NAME.")
    resource = _resource(topic, broker, broker_defaults)
    with admin_of(bootstrap, zookeeper) as admin:
        admin.alter_configs(resource, changes)
    typer.echo(f"{resource}: changed {', '.join(changes)}.")
