"""`barnabas generate`: made-up records that look like the real ones, to a topic or to stdout."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from barnabas.cli.exits import ends_well, output
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from barnabas.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.generate import Stream

app = typer.Typer(
    help="Make up records that look like the real ones: nginx logs, visitors of a shop, readings of services.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Count: TypeAlias = Annotated[
    int | None, typer.Option("--count", "-n", min=1, help="How many records; for ever without.")
]
Rate: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--rate", min=0.001, help="How many a second; with --count and no rate, as fast as it goes."
    ),
]
Speed: TypeAlias = Annotated[
    float,
    typer.Option(
        "--speed", min=0.001, help="How fast the time in the records runs: 60 is a minute a second."
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same records.")]
Start: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--start", metavar="WHEN", help="The time of the first record: 2026-01-31T12:00, 2h (ago), ms."
    ),
]
Topic: TypeAlias = Annotated[
    str | None, typer.Option("--topic", "-t", help="Where they go; a topic of the stream's name without.")
]
ToStdout: TypeAlias = Annotated[bool, typer.Option("--stdout", help="Print the values instead, one a line.")]
AsJson: TypeAlias = Annotated[
    bool,
    typer.Option("--json", help="Print whole records as JSON lines, as `produce --format json` reads them."),
]
Codec: TypeAlias = Annotated[
    str, typer.Option("--compression-type", "-z", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
]


@app.command()
@ends_well
def logs(
    count: Count = None,
    rate: Rate = None,
    seed: Seed = 1,
    start: Start = None,
    speed: Speed = 1.0,
    topic: Topic = None,
    stdout: ToStdout = False,
    as_json: AsJson = False,
    compression_type: Codec = "none",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Access lines of nginx on 40 hosts; one in 200 is broken.

    \b
    barnabas generate logs --count 1000000
    barnabas generate logs --rate 500 --topic access
    barnabas generate logs --count 10 --stdout
    """
    _generate("logs", count, rate, seed, start, speed, topic, stdout, as_json, compression_type, bootstrap)


@app.command()
@ends_well
def activity(
    count: Count = None,
    rate: Rate = None,
    seed: Seed = 1,
    start: Start = None,
    speed: Speed = 1.0,
    topic: Topic = None,
    stdout: ToStdout = False,
    as_json: AsJson = False,
    compression_type: Codec = "none",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Page views, searches and clicks of a shop's visitors, as JSON; some arrive late.

    \b
    barnabas generate activity --rate 200
    barnabas generate activity --count 100000 --start 2h --seed 7
    barnabas generate activity --rate 2000 --speed 60
    """
    _generate(
        "activity", count, rate, seed, start, speed, topic, stdout, as_json, compression_type, bootstrap
    )


@app.command()
@ends_well
def metrics(
    count: Count = None,
    rate: Rate = None,
    seed: Seed = 1,
    start: Start = None,
    speed: Speed = 1.0,
    topic: Topic = None,
    stdout: ToStdout = False,
    as_json: AsJson = False,
    compression_type: Codec = "none",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Readings of 20 services on 80 hosts, as JSON; now and then a service has an incident.

    \b
    barnabas generate metrics --rate 500
    barnabas generate metrics --count 10 --stdout --json
    """
    _generate("metrics", count, rate, seed, start, speed, topic, stdout, as_json, compression_type, bootstrap)


def _generate(
    name: str,
    count: int | None,
    rate: float | None,
    seed: int,
    start: str | None,
    speed: float,
    topic: str | None,
    stdout: bool,
    as_json: bool,
    compression_type: str,
    bootstrap: str,
) -> None:
    stream = _stream(name)
    chunks = _chunks(stream, count, rate, seed, start, speed)
    if stdout or as_json:
        for chunk in chunks:
            _print(chunk, as_json)
        return
    from barnabas.client.producer.producer import Producer
    from barnabas.generate.sending import send

    to = topic or stream.topic
    with Producer(
        bootstrap_servers=bootstrap, compression_type=compression_type, batch_size=256 * 1024
    ) as producer:
        with _progress(to, count) as advance:
            began = time.monotonic()
            try:
                sent = send(producer, to, chunks, advance)
            except KeyboardInterrupt:
                producer.flush()
                raise
        took = time.monotonic() - began
    sys.stderr.write(f"{sent:,} records to {to} in {took:.1f} s ({sent / max(took, 1e-9):,.0f} a second)\n")


def _stream(name: str) -> "Stream":
    try:
        from barnabas.generate import streams

        return streams()[name]
    except ImportError as error:
        raise BarnabasError(
            f"Generating records needs {error.name}: pip install 'barnabas[columns]'."
        ) from None


def _chunks(
    stream: "Stream", count: int | None, rate: float | None, seed: int, start: str | None, speed: float
) -> Iterable[Any]:
    """Unpaced records are the past, ending now; paced ones begin now; --start says otherwise."""
    from barnabas.cli.time_option import moment
    from barnabas.generate import Clock
    from barnabas.generate.sending import paced

    if rate is None and count is None:
        rate = stream.rate
    own_rate = (rate or stream.rate) / speed
    if start is not None:
        start_ms = moment(start)
    else:
        start_ms = int(time.time() * 1000)
        if rate is None and count is not None:
            start_ms -= int(count / own_rate * 1000)
    chunks = stream.chunks(seed, Clock(start_ms, own_rate), count)
    return chunks if rate is None else paced(chunks, rate)


def _print(chunk: Any, as_json: bool) -> None:
    from barnabas.cli.formats import to_json

    out = output()
    if not as_json:
        out.write(b"\n".join(chunk["value"].to_pylist()) + b"\n")
    else:
        moments = chunk["timestamp"].cast("int64").to_pylist()
        for key, value, at in zip(chunk["key"].to_pylist(), chunk["value"].to_pylist(), moments, strict=True):
            record = {"timestamp": at, "key": to_json(key), "value": to_json(value)}
            out.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    out.flush()


@contextmanager
def _progress(topic: str, count: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda sent: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    shown = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*shown, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(topic, total=count)
        yield lambda sent: progress.advance(task, sent)
