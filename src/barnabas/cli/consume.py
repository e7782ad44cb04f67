"""`barnabas consume`: records to stdout, from where one wants, until one has enough."""

import re
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.exits import INTERRUPTED, WrongUsage, ends_well, output
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Properties, client_settings
from barnabas.cli.time_option import moment
from barnabas.types import Offset, TopicPartition

if TYPE_CHECKING:
    from barnabas.cli.formats import Write
    from barnabas.client.consumer.consumer import Consumer


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
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="G",
            help="As a member of this group: share the topic, go on from its offsets.",
        ),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max", "--max-messages", "-n", min=1, help="Stop after this many records.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at what was the end when it began.")
    ] = False,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", min=1, help="Stop when nothing came for this long.")
    ] = None,
    format: Annotated[  # noqa: A002
        str,
        typer.Option(
            "--format", "-f", metavar="FORMAT", help="value, key-value, json, or a template: '%k: %v\\n'."
        ),
    ] = "value",
    properties: Properties = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print records; goes on until Ctrl-C unless told where to stop.

    \b
    barnabas consume orders --from-beginning --max 10
    barnabas consume orders --partition 0 --offset 42 --format json
    barnabas consume orders --from-time 1h --until-end --format '%p/%o %k=%v\\n'
    barnabas consume orders --group billing --from-beginning
    In a template: %k key, %v value, %t topic, %p partition, %o offset, %T timestamp, %h headers,
    %K and %S lengths of key and value.
    """
    from barnabas.cli.formats import writer
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.declared import ConsumerSettings

    if from_beginning + (offset is not None) + (from_time is not None) > 1:
        raise WrongUsage("Give only one of --from-beginning, --offset and --from-time.")
    if offset is not None and not re.fullmatch(r"earliest|latest|-?\d{1,18}", offset):
        raise WrongUsage(f"--offset takes a number, earliest or latest, not {offset!r}.")
    write = writer(format)
    ours: ConsumerSettings = {
        "bootstrap_servers": bootstrap,
        "client_id": "barnabas-cli",
        "max_partition_fetch_bytes": 4 << 20,
    }
    settings: Any = {**ours, **client_settings(ConsumerSettings, properties)}
    if group is not None:
        if partition or offset is not None or from_time is not None:
            raise WrongUsage(
                "A group says itself which partitions are read, and from where: `barnabas group reset` changes that."
            )
        reset = "earliest" if from_beginning else "latest"
        _share(settings, topic, group, reset, write, max_records, until_end, timeout_ms)
        return
    start = None if from_time is None else moment(from_time)
    with Consumer(**settings) as consumer:
        _assign(consumer, topic, partition or [])
        if from_beginning:
            consumer.seek_to_beginning()
        elif start is not None:
            consumer.seek_to_time(start)
        else:
            _seek(consumer, "latest" if offset is None else offset)
        _copy(consumer, write, max_records, until_end, timeout_ms)


def _share(
    settings: dict[str, Any],
    topic: str,
    group: str,
    reset: str,
    write: "Write",
    max_records: int | None,
    until_end: bool,
    timeout_ms: int | None,
) -> None:
    """Read as a member of a group. Ctrl-C ends between two polls, so that what was printed is committed."""
    from barnabas.client.consumer.consumer import Consumer

    stopping = _Stopping()
    consumer = Consumer(**{"auto_offset_reset": reset, **settings, "group_id": group})
    with consumer, stopping:
        ends = consumer.end_offsets(consumer.partitions_for(topic))
        consumer.subscribe([topic])
        out = output()
        left = max_records
        heard = time.monotonic()
        while not stopping.asked:
            patience = 1.0 if timeout_ms is None else heard + timeout_ms / 1000 - time.monotonic()
            if patience <= 0 or (until_end and _has_read(consumer, ends)):
                return
            found = consumer.poll(timeout=min(patience, 0.5), max_records=min(left or 10_000, 10_000))
            if found:
                heard = time.monotonic()
                out.write(b"".join(map(write, found)))
                out.flush()
                if left is not None and (left := left - len(found)) <= 0:
                    return
    sys.exit(INTERRUPTED)


def _has_read(consumer: "Consumer", ends: "dict[TopicPartition, Offset]") -> bool:
    """Whether all that the group gives us is read up to where it ended."""
    mine = consumer.assignment()
    return consumer.has_joined and all(consumer.position(each) >= ends.get(each, 0) for each in mine)


class _Stopping:
    """Turns the first Ctrl-C or SIGTERM into a question that is asked between polls; the second one ends at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> "_Stopping":
        self._before = {each: signal.signal(each, self._ask) for each in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def _assign(consumer: "Consumer", topic: str, wanted: list[int]) -> None:
    from barnabas.client.network.failures import no_partition

    found = consumer.partitions_for(topic)
    for number in wanted:
        if number >= len(found):
            raise no_partition(topic, number, len(found))
    consumer.assign([found[number] for number in wanted] if wanted else found)


def _seek(consumer: "Consumer", offset: str) -> None:
    if offset == "earliest":
        consumer.seek_to_beginning()
    elif offset == "latest":
        consumer.seek_to_end()
    else:
        number = int(offset)
        ends = consumer.end_offsets(consumer.assignment())
        starts = consumer.beginning_offsets(consumer.assignment()) if number < 0 else {}
        for each in sorted(consumer.assignment()):
            consumer.seek(each, max(ends[each] + number, starts[each]) if number < 0 else number)
            if number > ends[each]:
                typer.echo(
                    f"barnabas: Partition {each} ends at offset {ends[each]}, before {number}: "
                    "what comes after its end is shown.",
                    err=True,
                )


def _copy(
    consumer: "Consumer", write: "Write", max_records: int | None, until_end: bool, timeout_ms: int | None
) -> None:
    out = output()
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
