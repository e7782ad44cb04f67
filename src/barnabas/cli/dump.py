"""`barnabas log dump`: what is in a segment or one of its indexes on disk, batch by batch.

Reads the file alone, no broker: it works on Kafka's files as on ours. Ends with 1 where the file is broken.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.exits import ends_well, try_each
from barnabas.errors import BarnabasError, Refused

if TYPE_CHECKING:
    from barnabas.wire.batch import BatchHeader, Record

app = typer.Typer(
    help="Look into log files and data directories, and move replicas between them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_INDEXES = {
    ".index": (Struct(">ii"), ("offset", "position")),
    ".timeindex": (Struct(">qi"), ("timestamp", "offset")),
    ".txnindex": (
        Struct(">hqqqq"),
        ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset"),
    ),
}
"""How an entry is laid out, and what its numbers are; the aborted transactions of a segment are an index, too."""
_CHUNK = 1 << 20


@app.callback()
def _log() -> None:
    """Look into log files and data directories, and move replicas between them."""


@app.command()
@ends_well
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Segments (.log) or indexes (.index, .timeindex, .txnindex)."),
    ],
    records: Annotated[
        bool, typer.Option("--records/--no-records", help="Print the records too, or the batches only.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print the batches and records of a segment, and check them.

    \b
    barnabas log dump data/orders-0/00000000000000000000.log
    barnabas log dump --no-records --json data/orders-0/*.log
    """

    def dump_one(path: Path) -> None:
        if len(files) > 1 and not as_json:
            typer.echo(f"{path}:")
        if path.suffix in _INDEXES:
            _dump_entries(path, *_INDEXES[path.suffix], as_json)
        else:
            _dump_segment(path, records, as_json)

    try_each(files, dump_one)


def _dump_entries(path: Path, layout: Struct, names: tuple[str, ...], as_json: bool) -> None:
    data = path.read_bytes()
    base = int(path.stem) if path.stem.isdigit() else 0
    for numbers in layout.iter_unpack(data[: len(data) // layout.size * layout.size]):
        # Offsets are stored as distances from the segment's first one.
        entry = {
            name: value + base if name == "offset" else value
            for name, value in zip(names, numbers, strict=True)
        }
        typer.echo(
            json.dumps(entry) if as_json else " ".join(f"{name}: {value}" for name, value in entry.items())
        )
    if len(data) % layout.size:
        raise BarnabasError(f"{path}: the last {len(data) % layout.size} bytes are no whole entry.")


def _dump_segment(path: Path, with_records: bool, as_json: bool) -> None:
    from barnabas.wire.batch import decode_batch

    for at, header, batch in _batches(path):
        try:
            shown = _batch(at, header)
            typer.echo(
                json.dumps(shown)
                if as_json
                else " ".join(f"{name}: {value}" for name, value in shown.items())
            )
            found = decode_batch(batch) if with_records else []
        except Refused as error:
            raise BarnabasError(f"{path}, byte {at}: {error}") from None
        if header.is_control:
            _dump_marker(batch, found, as_json)
            continue
        for record in found:
            typer.echo(json.dumps(_record(record), ensure_ascii=False) if as_json else _record_line(record))


def _dump_marker(batch: memoryview, found: "list[Record]", as_json: bool) -> None:
    """How a transaction ended, in the words of Kafka's own tool."""
    from barnabas.log.transactions.markers import read_marker

    marker = read_marker(batch) if found else None
    if marker is None:
        return
    shown = {
        "offset": found[0].offset,
        "timestamp": found[0].timestamp,
        "endTxnMarker": "COMMIT" if marker.commit else "ABORT",
        "coordinatorEpoch": marker.coordinator_epoch,
    }
    line = " ".join(f"{name}: {value}" for name, value in shown.items())
    typer.echo(json.dumps(shown) if as_json else f"| {line}")


def _batches(path: Path) -> "Iterator[tuple[int, BatchHeader, memoryview]]":
    """Each whole batch with a right checksum; raises at the first that is not."""
    from mmap import ACCESS_READ, mmap

    from barnabas.wire.batch import crc_of, headers

    with path.open("rb") as file:
        size = path.stat().st_size
        if not size:
            return
        view = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
    end = 0
    try:
        for at, header in headers(view):
            if header.magic != 2:
                raise BarnabasError(f"{path}, byte {at}: this is no record batch of magic 2.")
            if crc_of(view, at, header.size) != header.crc:
                raise BarnabasError(
                    f"{path}, byte {at}: the batch at offset {header.base_offset} fails its checksum."
                )
            yield at, header, view[at : at + header.size]
            end = at + header.size
    except Refused as error:
        why = str(error)
    else:
        why = f"the last {size - end} bytes are no whole batch."
    # Space that a broker reserves and has not used yet is zeros up to the end, and no damage.
    if any(bytes(view[at : at + _CHUNK]).strip(b"\0") for at in range(end, size, _CHUNK)):
        raise BarnabasError(f"{path}, byte {end}: {why}")


def _batch(at: int, header: "BatchHeader") -> dict[str, int | str | bool]:
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "position": at,
        "timestamp": header.max_timestamp,
        "timestampType": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "size": header.size,
        "magic": header.magic,
        "compresscodec": header.codec.name.lower(),
        "crc": header.crc,
    }


def _record(record: "Record") -> dict[str, object]:
    shown: dict[str, object] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
    }
    if record.headers:
        shown["headers"] = [[name, _text(value)] for name, value in record.headers]
    return shown


def _record_line(record: "Record") -> str:
    headers = ",".join(f"{name}={_text(value)}" for name, value in record.headers)
    line = f"| offset: {record.offset} timestamp: {record.timestamp}"
    line += f" key: {_text(record.key)} value: {_text(record.value)}"
    return f"{line} headers: {headers}" if headers else line


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
