"""What a record costs the client in CPU, without any network: `python -m bench.columns [--seconds S]`.

The figures in the comments of hot paths come from here: nanoseconds a record of 100 B, the best of many rounds.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from barnabas.client.columns.columns import Fetched, decode, encode
from barnabas.client.columns.large_batches import decode_large
from barnabas.wire.batch import Record, decode_batch, decode_flat, encode_batch, read_header
from barnabas.wire.compression import Compression
from barnabas.wire.records import encode_flat

ROWS = 9000
"""About 1 MiB, what is decoded at once."""

SMALL = 150
"""Rows of a batch of 16 KiB, Kafka's default."""

NOW = 1_700_000_000_000


def records(*, spread: int = 0, keys: bool = False, headers: bool = False) -> list[Record]:
    """Values of 100 B, give or take `spread`; times grow as they do at 50 records a millisecond."""
    chance = random.Random(7)
    return [
        Record(
            number,
            NOW + number // 50,
            b"user-%d" % chance.randrange(100_000) if keys else None,
            chance.randbytes(100 + chance.randint(-spread, spread)),
            (("source", b"web"),) if headers else (),
        )
        for number in range(ROWS)
    ]


def fetched(found: list[Record], per_batch: int, codec: Compression = Compression.NONE) -> list[Fetched]:
    """As a fetch would bring them."""
    batches = [
        encode_batch(found[at : at + per_batch], base_offset=at, codec=codec)
        for at in range(0, ROWS, per_batch)
    ]
    return [Fetched("topic", 0, memoryview(bytearray(b"".join(batches))))]


def decoding() -> Iterator[tuple[str, Callable[[], object]]]:
    shapes = {
        "one size": records(),
        "sizes differ": records(spread=30),
        "keys": records(spread=30, keys=True),
        "keys, headers": records(spread=30, keys=True, headers=True),
    }
    for name, found in shapes.items():
        log = fetched(found, ROWS)
        yield f"to columns, {name}", lambda log=log: decode(log)  # type: ignore[misc]
    log = fetched(shapes["sizes differ"], ROWS)
    yield "to columns, sizes differ, value only", lambda: decode(log, ["value"])
    small = fetched(shapes["sizes differ"], SMALL)
    yield "to columns, sizes differ, batches of 16 KiB", lambda: decode(small)
    for codec in list(Compression)[1:]:
        packed = fetched(shapes["sizes differ"], ROWS, codec)
        yield f"to columns, sizes differ, {codec.name.lower()}", lambda packed=packed: decode(packed)  # type: ignore[misc]
    for name in ("one size", "sizes differ", "keys"):
        batch = memoryview(encode_batch(shapes[name]))
        header = read_header(batch)
        yield f"to lists, {name}", lambda batch=batch: decode_flat(batch)  # type: ignore[misc]
        yield (
            f"to lists with numpy, {name}",
            lambda batch=batch, header=header: decode_large(batch, 0, header),  # type: ignore[misc]
        )
    yield "to records, keys", lambda: decode_batch(batch)


def encoding() -> Iterator[tuple[str, Callable[[], object]]]:
    found = records(spread=30, keys=True)
    table = pa.table(
        {
            "key": pa.array([record.key for record in found], pa.binary()),
            "value": pa.array([record.value for record in found], pa.binary()),
            "time": pa.array([record.timestamp for record in found], pa.timestamp("ms")),
            "headers": pa.array([[{"key": "source", "value": b"web"}]] * ROWS),
        }
    )

    def from_table(**columns: Any) -> Callable[[], object]:
        return lambda: list(encode(table, partitions=6, now_ms=NOW, batch_bytes=1 << 20, **columns))

    yield "from a table, values", from_table()
    yield "from a table, keys", from_table(key="key")
    yield "from a table, keys, times", from_table(key="key", timestamp="time")
    yield "from a table, keys, times, headers", from_table(key="key", timestamp="time", headers="headers")
    keys, values, times = (
        [record.key for record in found],
        [record.value for record in found],
        [record.timestamp for record in found],
    )
    yield "from lists, values", lambda: encode_flat(values, None, None, times)
    yield "from lists, keys", lambda: encode_flat(values, keys, None, times)
    pairs = [(("source", b"web"),)] * ROWS
    yield "from lists, keys, headers", lambda: encode_flat(values, keys, pairs, times)


def best(action: Callable[[], object], seconds: float) -> float:
    """Nanoseconds of CPU a record, in the best round."""
    shortest = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or shortest == float("inf"):
        begin = time.thread_time()
        action()
        shortest = min(shortest, time.thread_time() - begin)
    return shortest / ROWS * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.columns", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each is repeated")
    seconds = parser.parse_args().seconds
    for title, cases in (("Decoding", decoding()), ("Encoding", encoding())):
        print(f"{title} {ROWS} records of about 100 B")
        for name, action in cases:
            nanoseconds = best(action, seconds)
            print(f"  {name:<48} {nanoseconds:6.0f} ns   {1e3 / nanoseconds:5.2f} M/s", flush=True)


if __name__ == "__main__":
    main()
