"""`barnabas connect`: run connectors that a TOML file declares, and tell what connectors there are."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.exits import WrongUsage, ends_well
from barnabas.cli.options import Master, SparkSettings, pairs
from barnabas.errors import BarnabasError

app = typer.Typer(
    help="Named sources and sinks (files, databases, HTTP, topics), declared in a TOML file and run on Spark.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file that declares them.")]
Flows = Annotated[
    list[str] | None,
    typer.Option("--flow", metavar="NAME", help="Only this flow; several times. All without."),
]


@app.command("list")
@ends_well
def list_() -> None:
    """List the connectors there are, and what they can be.

    \b
    barnabas connect list
    """
    from barnabas.connect.connector import sinks, sources

    for kind, found in (("sources", sources()), ("sinks", sinks())):
        typer.echo(kind)
        for name, connector in found.items():
            typer.echo(f"  {name:<10} {_summary(connector)}")


@app.command()
@ends_well
def describe(
    name: Annotated[str, typer.Argument(metavar="CONNECTOR", help="One of `connect list`.")],
) -> None:
    """Show what a connector does, and all its options.

    \b
    barnabas connect describe jdbc
    """
    from barnabas.connect.connector import sinks, sources
    from barnabas.connect.option import no_such, options_of
    from barnabas.connect.sketch import shown_default

    if name not in {**sources(), **sinks()}:
        raise WrongUsage(f"{no_such('connector', name, sorted({**sources(), **sinks()}))}".capitalize())
    for kind, found in (("source", sources()), ("sink", sinks())):
        if name not in found:
            continue
        typer.echo(f"{kind} {name}: {_summary(found[name])}")
        options = options_of(found[name]).values()
        width = max(len(each.name) for each in options)
        for each in options:
            typer.echo(f"  {each.name:<{width}}  {each.kind}, {shown_default(each)}")
            typer.echo(f"  {'':<{width}}  {each.doc} {each.limits}".rstrip())
        typer.echo("")


@app.command()
@ends_well
def check(file: File, flows: Flows = None) -> None:
    """Check a file, and whether what it names answers, without starting Spark.

    \b
    barnabas connect check shop.toml
    """
    from barnabas.connect.declaration import read_declaration
    from barnabas.connect.running import check_flows, chosen_flows

    chosen = chosen_flows(read_declaration(file), flows or [])
    problems = check_flows(chosen)
    if problems:
        raise BarnabasError(" ".join(f"{problem}" for problem in problems))
    for flow in chosen:
        for name, sink in flow.sinks.items():
            typer.echo(
                f"{flow.name}: {flow.options.source} ({flow.source.name}, {flow.source.guarantee()}) -> "
                f"{name} ({sink.name}, {sink.guarantee()})"
            )


@app.command()
@ends_well
def new(
    file: File,
    source: Annotated[
        str, typer.Option("--from", metavar="CONNECTOR", help="Where rows come from.")
    ] = "jsonlines",
    sink: Annotated[str, typer.Option("--to", metavar="CONNECTOR", help="Where they go.")] = "topic",
) -> None:
    """Begin a file: what has to be given with examples, every other option as a comment with its default.

    \b
    barnabas connect new shop.toml --from jdbc --to topic
    """
    from barnabas.connect.sketch import sketch

    text = sketch(source, sink)
    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(text.replace("FILE", str(file)))
    except FileExistsError:
        raise BarnabasError(f"{file} is there already.") from None
    typer.echo(f"Made {file}. Check it with: barnabas connect check {file}")


@app.command()
@ends_well
def run(
    file: File,
    once: Annotated[bool, typer.Option("--once", help="Take what is there, then end.")] = False,
    checkpoint: Annotated[
        str,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="Keeps how far each flow has come; the file's, or checkpoints/FILE, without.",
        ),
    ] = "",
    flows: Flows = None,
    master: Master = None,
    spark_settings: SparkSettings = None,
) -> None:
    """Run the flows of a file until Ctrl-C, or with --once until they have caught up; then they go on from there.

    \b
    barnabas connect run shop.toml --once
    barnabas connect run shop.toml --flow orders --checkpoint /data/checkpoints/shop
    """
    from barnabas.connect.declaration import read_declaration
    from barnabas.connect.running import check_flows, checkpoint_of, chosen_flows, run_flows

    declaration = read_declaration(file)
    chosen = chosen_flows(declaration, flows or [])
    folder = checkpoint_of(declaration, checkpoint)
    problems = check_flows(chosen)
    if problems:
        raise BarnabasError(" ".join(problems))

    from barnabas.spark.session import start_session

    settings = pairs(spark_settings, "--conf")
    spark = start_session(f"barnabas connect {file.stem}", master=master, settings=settings)
    try:
        from barnabas.connect.flow import Told
        from barnabas.spark.live_line import LiveLine
        from barnabas.spark.stopping import Stop, on_signals

        line = LiveLine(sys.stderr)
        done = {flow.name: Told(flow.name, 0, 0, 0.0) for flow in chosen}

        def told() -> str:
            return " | ".join(
                f"{each.flow} {each.rows:,} rows in {each.batches:,} batches, the last {each.batch_seconds:.1f} s"
                for each in done.values()
            )

        def tell(each: Told) -> None:
            done[each.flow] = each
            line.show(told())

        stop = Stop()
        sys.stderr.write(f"Running {', '.join(done)}; Ctrl-C ends it.\n")
        with on_signals(stop):
            try:
                run_flows(spark, chosen, folder, once=once, stop=stop, tell=tell)
            finally:
                line.end(told())
    finally:
        spark.stop()


def _summary(connector: type) -> str:
    return " ".join((connector.__doc__ or "").split())
