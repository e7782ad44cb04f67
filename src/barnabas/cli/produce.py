"""`barnabas produce`: records from lines of a file or of a pipe.

What comes through a pipe or is typed goes out when no more input is waiting, so nothing lingers unseen; a file
goes out in large batches, with a progress bar on a terminal.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.exits import WrongUsage, ends_well
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Properties, client_settings
from barnabas.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.cli.formats import Read
    from barnabas.client.producer.producer import Producer

_CHUNK = 1 << 18
_LONGEST_LINE = 64 << 20

LARGEST = 100 << 20
"""As much as a broker reads at once: how large a record may be is for its topic to say (max.message.bytes)."""


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@ends_well
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the records go.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="What to send, a record a line; - is stdin."),
    ] = None,
    format: Annotated[  # noqa: A002
        str, typer.Option("--format", metavar="value|json", help="What a line is.")
    ] = "value",
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Parts the key from the value: '\\t'."),
    ] = None,
    null_marker: Annotated[
        str | None, typer.Option("--null-marker", metavar="TEXT", help="A key or value that stands for null.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record; several times."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="The partition, whatever the key.")
    ] = None,
    keep_partitions: Annotated[
        bool,
        typer.Option("--keep-partitions", help="The partition that a JSON line names, whatever the key."),
    ] = False,
    compression_type: Annotated[
        Codec, typer.Option("--compression-type", "-z", help="How batches are compressed.")
    ] = Codec.NONE,
    acks: Annotated[
        Acks,
        typer.Option("--acks", help="What must have it before it counts as sent: nothing, the leader, all."),
    ] = Acks.ALL,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Bytes of a batch.")] = 256 * 1024,
    timeout_ms: Annotated[
        int, typer.Option("--timeout", min=1, metavar="MS", help="How long to try before giving up.")
    ] = 30_000,
    properties: Properties = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send lines as records.

    \b
    echo hello | barnabas produce greetings
    barnabas produce orders orders.csv --key-separator , -z lz4
    barnabas consume orders --from-beginning --until-end --format json | barnabas produce copy --format json
    A JSON line has a value, and may have key, headers and timestamp; its partition counts with --keep-partitions.
    """
    from barnabas.cli.formats import reader
    from barnabas.client.declared import ProducerSettings
    from barnabas.client.producer.producer import Producer

    if keep_partitions and (format != "json" or partition is not None):
        raise WrongUsage("--keep-partitions goes with --format json, and not with --partition.")
    read = reader(format, key_separator, null_marker)
    headers = tuple(_header(each) for each in header or [])
    ours: ProducerSettings = {
        "client_id": "barnabas-cli",
        "acks": acks.value,
        "compression_type": compression_type.value,
        "batch_size": batch_size,
        "delivery_timeout_ms": timeout_ms,
        "max_block_ms": min(timeout_ms, 5_000),
        "max_request_size": LARGEST,
    }
    with Producer(bootstrap, **{**ours, **client_settings(ProducerSettings, properties)}) as producer:
        line = Line(producer, topic, read, key, headers, partition, keep_partitions)
        for path in files or [Path("-")]:
            line.name = "stdin" if str(path) == "-" else str(path)
            line.number = 0
            _send_file(path, line)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise WrongUsage(f"--header takes NAME=VALUE, not {text!r}.")
    return name, os.fsencode(value)


class Line:
    """Turns lines into records, and knows which line it is at when one cannot be read."""

    def __init__(
        self,
        producer: "Producer",
        topic: str,
        read: "Read",
        key: str | None,
        headers: tuple[tuple[str, bytes | None], ...],
        partition: int | None,
        keeps_partitions: bool,
    ) -> None:
        self.name = ""
        self.number = 0
        self.producer = producer
        self._topic = topic
        self._read = read
        self._key = None if key is None else os.fsencode(key)
        self._headers = headers
        self._partition = partition
        self._keeps_partitions = keeps_partitions

    def send(self, line: bytes) -> None:
        self.number += 1
        try:
            record = self._read(line)
        except BarnabasError as error:
            raise BarnabasError(f"Line {self.number} of {self.name} cannot be sent: {error}.") from None
        self.producer.send(
            self._topic,
            record.value,
            key=self._key if record.key is None else record.key,
            headers=record.headers + self._headers,
            partition=record.partition if self._keeps_partitions else self._partition,
            timestamp=record.timestamp,
        )


def _send_file(path: Path, line: Line) -> None:
    if str(path) == "-":
        if sys.stdin is None:
            raise BarnabasError("There is nothing to send: stdin is closed.")
        _send_lines(_arriving(sys.stdin.fileno(), line.producer), line, lambda size: None)
        return
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        with _progress(path.name, size) as advance:
            _send_lines(iter(lambda: file.read(_CHUNK), b""), line, advance)
            line.producer.flush()


def _send_lines(chunks: Iterator[bytes], line: Line, advance: Callable[[int], None]) -> None:
    rest = b""
    for chunk in chunks:
        first, *more = chunk.split(b"\n")
        rest += first
        for following in more:
            line.send(rest)
            rest = following
        if len(rest) > _LONGEST_LINE:
            raise BarnabasError(
                f"Line {line.number + 1} of {line.name} is longer than {_LONGEST_LINE} bytes."
            )
        advance(len(chunk))
    if rest:
        line.send(rest)


def _arriving(fd: int, producer: "Producer") -> Iterator[bytes]:
    """What comes through a pipe; whenever nothing more is waiting there, what came so far is sent."""
    from select import select

    while True:
        if not select([fd], [], [], 0.005)[0]:
            producer.flush()
        chunk = os.read(fd, _CHUNK)
        if not chunk:
            return
        yield chunk


@contextmanager
def _progress(name: str, size: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=size)
        yield lambda done: progress.advance(task, done)
