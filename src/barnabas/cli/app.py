"""The tree of commands as typer sees it. Imported only when a command other than a plain start is run.

Each family has a file; what is expensive (rich, the client) is imported inside the commands that need it.
"""

from enum import StrEnum
from typing import Annotated

import typer

from barnabas.cli import (
    cluster,
    configs,
    connect,
    consume,
    demo,
    dump,
    elect,
    generate,
    groups,
    log_dirs,
    pipeline,
    produce,
    reassign,
    topics,
    transactions,
    zookeeper,
)
from barnabas.cli.exits import ends_well

# Plain help: rich would make --help four times slower.
app = typer.Typer(
    name="barnabas",
    help="A durable log that speaks the Kafka protocol: broker and tools.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Start one broker with `barnabas up`, then try `echo hello | barnabas produce greetings` and "
    "`barnabas consume greetings --from-beginning`. Every command has its own --help with examples.",
)

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A broker setting, by Kafka's name; several times."),
]
Metrics = Annotated[
    str, typer.Option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics at this address.")
]


class LogStyle(StrEnum):
    TEXT = "text"
    JSON = "json"


LogFormat = Annotated[LogStyle, typer.Option("--log-format", help="How events are logged.")]


@app.callback(invoke_without_command=True)
def _barnabas(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"barnabas {version_of('barnabas')}")
        raise typer.Exit


@app.command()
@ends_well
def up(
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect; port 0 takes a free one."),
    ] = "127.0.0.1:9092",
    data: Annotated[
        str, typer.Option("--data", metavar="DIR", help="The folder that keeps everything.")
    ] = "data",
    brokers: Annotated[
        int,
        typer.Option(
            "--brokers",
            metavar="N",
            min=1,
            max=1000,
            help="How many; more than one need Java, for ZooKeeper.",
        ),
    ] = 1,
    settings: Settings = None,
    metrics: Metrics = "",
    log_format: LogFormat = LogStyle.TEXT,
) -> None:
    """Start a broker, or a cluster; prints `ready` and the address once it serves, and stops cleanly on Ctrl-C.

    With --brokers, ZooKeeper and the brokers are processes of this machine. The first broker listens at --listen, the
    others on the next free ports; --set counts for each of them. One that dies is started again.

    \b
    barnabas up
    barnabas up --listen 0.0.0.0:9092 --data /var/lib/barnabas --set num.partitions=4
    barnabas up --brokers 3
    """
    if brokers > 1:
        from barnabas.cli.up import broker_pairs
        from barnabas.cli.up_cluster import up_cluster

        up_cluster(brokers, listen, data, broker_pairs(settings or []), metrics, log_format.value)
        return
    from barnabas.cli.up import up as start

    start(listen, data, settings or [], metrics, log_format.value)


@app.command()
@ends_well
def broker(
    config: Annotated[
        str, typer.Option("--config", metavar="FILE", help="A server.properties as Kafka has it.")
    ],
    settings: Settings = None,
    metrics: Metrics = "",
    log_format: LogFormat = LogStyle.TEXT,
) -> None:
    """Start one broker from a server.properties file with Kafka's names.

    \b
    barnabas broker --config server.properties --set log.retention.hours=24
    """
    from barnabas.cli.up import broker as start

    start(config, settings or [], metrics, log_format.value)


app.add_typer(topics.app, name="topic")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(groups.app, name="group")
app.add_typer(transactions.app, name="transaction")
app.add_typer(configs.app, name="config")
app.add_typer(cluster.app, name="cluster")
app.add_typer(reassign.app, name="reassign")
app.command("elect")(elect.elect)
dump.app.command("dirs")(log_dirs.dirs)
dump.app.command("move")(log_dirs.move)
app.add_typer(dump.app, name="log")
app.add_typer(generate.app, name="generate")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(connect.app, name="connect")
app.command("demo")(demo.demo)
app.command("zookeeper")(zookeeper.zookeeper)
