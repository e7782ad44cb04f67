"""`barnabas pipeline`: run pipelines on Spark, list those that come with Barnabas, begin one of your own."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.exits import WrongUsage, ends_well
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Master, SparkSettings, pairs
from barnabas.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.pipelines.declaration import Pipeline

app = typer.Typer(
    help="Pipelines on Spark: from topics, through a function on DataFrames, to topics and tables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Which = Annotated[
    str, typer.Argument(metavar="NAME|FILE[:NAME]", help="One of `pipeline list`, or a file with one.")
]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the pipeline; several times."),
]


@app.command("list")
@ends_well
def list_() -> None:
    """List the pipelines that come with Barnabas.

    \b
    barnabas pipeline list
    """
    found = _ready()
    width = max(len(name) for name in found)
    for name, pipeline in found.items():
        typer.echo(f"{name:<{width}}  {pipeline.summary}")


@app.command()
@ends_well
def describe(which: Which, settings: Parameters = None) -> None:
    """Show what a pipeline reads and writes, and its parameters.

    \b
    barnabas pipeline describe activity-tracking
    barnabas pipeline describe visits.py --set output=/data/visits
    """
    pipeline, values = _found(which, settings)
    sources, sinks = pipeline.places(values)
    typer.echo(f"{pipeline.name}\n\n{pipeline.about}\n")
    for name, place in sources.items():
        typer.echo(f"from  {name}: {place.describe()}")
    for name, place in sinks.items():
        typer.echo(f"to    {name}: {place.describe()}")
    if values:
        typer.echo("\nparameters (--set NAME=VALUE)")
    width = max((len(f"{name}={value}") for name, value in values.items()), default=0)
    for name, value in values.items():
        typer.echo(f"  {f'{name}={value}':<{width}}  {pipeline.parameters[name].about}".rstrip())


@app.command()
@ends_well
def run(
    which: Which,
    settings: Parameters = None,
    master: Master = None,
    checkpoint: Annotated[
        str,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="Keeps how far it has come; one of its own in checkpoints/ without, for these sources and sinks.",
        ),
    ] = "",
    reset: Annotated[
        bool, typer.Option("--reset", help="Begin anew: forget how far it has come; what it wrote stays.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, then end.")] = False,
    every: Annotated[
        str,
        typer.Option(
            "--every", metavar="TIME", help="How often a batch begins: '10 seconds'; at once without."
        ),
    ] = "",
    starting: Annotated[
        str, typer.Option("--from", metavar="earliest|latest", help="Where to begin the first time.")
    ] = "earliest",
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--packages", metavar="GROUP:NAME:VERSION", help="Jars Spark needs, from Maven; several times."
        ),
    ] = None,
    spark_settings: SparkSettings = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Run a pipeline until Ctrl-C, or with --once until it has caught up; the next time it goes on from there.

    \b
    barnabas pipeline run log-collection --set output=/data/logs
    barnabas pipeline run activity-tracking --once --checkpoint /data/checkpoints/activity
    barnabas pipeline run visits.py --master spark://10.0.0.1:7077 --set gap='10 minutes'
    """
    pipeline, _ = _found(which, settings)
    from barnabas.pipelines.running import Run
    from barnabas.pipelines.running import run as run_pipeline

    how = Run(
        bootstrap=bootstrap,
        parameters=pairs(settings, "--set"),
        checkpoint=checkpoint,
        once=once,
        starting=starting,
        every=every,
        master=master,
        packages=tuple(packages or ()),
        spark_settings=pairs(spark_settings, "--conf"),
        reset=reset,
    )
    if sys.stderr.isatty():
        sys.stderr.write(f"Starting {pipeline.name} on Spark ...")
        sys.stderr.flush()
    ended = run_pipeline(pipeline, how)
    goes_on = f"; it goes on from {how.checkpoint_of(pipeline)}" if ended.rows else ""
    verb = "was stopped" if ended.stopped else "is done"
    sys.stderr.write(f"{pipeline.name} {verb} after {ended.seconds:.1f} s{goes_on}\n")


@app.command()
@ends_well
def new(
    path: Annotated[Path, typer.Argument(metavar="FILE.py", help="The file to begin.")],
) -> None:
    """Begin a pipeline of your own: a file that runs as it is, to be changed.

    \b
    barnabas pipeline new visits.py && barnabas pipeline run visits.py
    """
    if path.suffix != ".py":
        path = path.with_name(path.name + ".py")
    name = path.stem.replace("-", "_")
    if not name.isidentifier():
        raise WrongUsage(f"{path.stem!r} cannot be the name of a function: use letters, digits and _.")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_TEMPLATE.replace("NAME", name).replace("FILE", str(path)))
    except FileExistsError:
        raise BarnabasError(f"{path} is there already.") from None
    typer.echo(f"Made {path}. Run it with: barnabas pipeline run {path}")


def _found(which: str, settings: list[str] | None) -> "tuple[Pipeline, dict[str, Any]]":
    """The pipeline that is meant, and its parameters; a wrong name of either is wrong usage."""
    from barnabas.pipelines.finding import find

    try:
        pipeline = find(which)
        return pipeline, pipeline.settings(pairs(settings, "--set"))
    except BarnabasError as error:
        raise WrongUsage(str(error)) from error


def _ready() -> "dict[str, Pipeline]":
    try:
        from barnabas.pipelines.finding import ready_pipelines

        return ready_pipelines()
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise BarnabasError("Pipelines need PySpark: pip install 'barnabas[spark]'.") from None


_TEMPLATE = '''"""What this pipeline is for."""

from typing import Annotated

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from barnabas.pipelines import main, parquet, pipeline, topic


@pipeline(source=topic("{source}"), sink=parquet("{output}"))
def NAME(
    records: DataFrame,
    source: Annotated[str, "the topic to read"] = "events",
    output: Annotated[str, "the folder of the table"] = "tables/NAME",
) -> DataFrame:
    """Values of a topic as text, to Parquet.

    A record has key, value, topic, partition, offset, timestamp and timestampType.
    """
    return records.select(
        f.col("key").cast("string"), f.col("value").cast("string"), "partition", "offset", "timestamp"
    )


# barnabas pipeline run FILE --once
# spark-submit FILE --once
if __name__ == "__main__":
    main()
'''
