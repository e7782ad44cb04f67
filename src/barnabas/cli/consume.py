"""`barnabas consume`: records to stdout, from where one wants, until one has enough."""

import re
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.exits import ends_well
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from barnabas.errors import BarnabasError
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.cli.formats import Write
    from barnabas.client.consumer import Consumer

_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@ends_well
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="From the oldest record on.")
    ] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; several times.")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="N",
            help="From this offset, or `earliest`, `latest`, or -N from the end.",
        ),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time", metavar="T", help="From a time: 2026-01-31T12:00, milliseconds, or 10m ago as 10m."
        ),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max", "--max-messages", "-n", min=1, help="Stop after so many records.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at what was the end when it began.")
    ] = False,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", min=1, help="Stop when nothing came for so long.")
    ] = None,
    format: Annotated[  # noqa: A002
        str,
        typer.Option(
            "--format", "-f", metavar="FORMAT", help="value, key-value, json, or a template: '%k: %v\\n'."
        ),
    ] = "value",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print records; goes on until Ctrl-C unless told where to stop.

    \b
    barnabas consume orders --from-beginning --max 10
    barnabas consume orders --partition 0 --offset 42 --format json
    barnabas consume orders --from-time 1h --until-end --format '%p/%o %k=%v\\n'
    In a template: %k key, %v value, %t topic, %p partition, %o offset, %T timestamp, %h headers,
    %K and %S lengths of key and value.
    """
    from barnabas.cli.formats import writer
    from barnabas.client.consumer import Consumer

    if from_beginning + (offset is not None) + (from_time is not None) > 1:
        raise BarnabasError("Give only one of --from-beginning, --offset and --from-time.")
    write = writer(format)
    start = None if from_time is None else _moment(from_time)
    with Consumer(bootstrap, client_id="barnabas-cli", max_partition_fetch_bytes=4 << 20) as consumer:
        _assign(consumer, topic, partition or [])
        if from_beginning:
            consumer.seek_to_beginning()
        elif start is not None:
            consumer.seek_to_time(start)
        else:
            _seek(consumer, offset or "latest")
        _copy(consumer, write, max_records, until_end, timeout_ms)


def _assign(consumer: "Consumer", topic: str, wanted: list[int]) -> None:
    found = consumer.partitions_for(topic)
    for number in wanted:
        if number >= len(found):
            raise BarnabasError(f"Topic {topic!r} has no partition {number}, only {len(found)}.")
    consumer.assign([found[number] for number in wanted] if wanted else found)


def _seek(consumer: "Consumer", offset: str) -> None:
    if offset == "earliest":
        consumer.seek_to_beginning()
    elif offset == "latest":
        consumer.seek_to_end()
    elif re.fullmatch(r"-?\d+", offset):
        number = int(offset)
        ends = consumer.end_offsets(consumer.assignment()) if number < 0 else {}
        starts = consumer.beginning_offsets(consumer.assignment()) if number < 0 else {}
        for each in consumer.assignment():
            consumer.seek(each, max(ends[each] + number, starts[each]) if number < 0 else number)
    else:
        raise BarnabasError(f"--offset takes a number, earliest or latest, not {offset!r}.")


def _moment(text: str) -> int:
    """A point in time in milliseconds."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago:
        return int(time.time() * 1000) - int(ago[1]) * _UNITS[ago[2]]
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        raise BarnabasError(
            f"{text!r} is no time: say 2026-01-31T12:00, milliseconds since 1970, or 10m."
        ) from None


def _copy(
    consumer: "Consumer", write: "Write", max_records: int | None, until_end: bool, timeout_ms: int | None
) -> None:
    out = sys.stdout.buffer
    ends = consumer.end_offsets(consumer.assignment()) if until_end else {}
    left = max_records
    heard = time.monotonic()
    while True:
        if until_end and all(consumer.position(each) >= end for each, end in ends.items()):
            return
        patience = 1.0 if timeout_ms is None else heard + timeout_ms / 1000 - time.monotonic()
        if patience <= 0:
            return
        found = consumer.poll(timeout=min(patience, 1.0), max_records=min(left or 10_000, 10_000))
        if until_end:
            found = [each for each in found if each.offset < ends[TopicPartition(each.topic, each.partition)]]
        if not found:
            continue
        heard = time.monotonic()
        out.write(b"".join(map(write, found)))
        out.flush()
        if left is not None:
            left -= len(found)
            if left <= 0:
                return
