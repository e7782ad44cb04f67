"""Owns the rows that tests of streams feed: as a batch, or as a stream of files that grows."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from barnabas.streams import Stream

Row = Mapping[str, Any]

WITHIN_S = 180
"""How long a query of a few rows may take: moments, and minutes where many others want the same cores."""

ORDERS = "id long, user string, amount double, at timestamp"


def order(number: int, user: str, amount: float, at: str) -> Row:
    return {"id": number, "user": user, "amount": amount, "at": f"2026-01-01T{at}Z"}


class Feed:
    """A folder of JSON lines: each `add` is a file, so a batch of the stream."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str = ORDERS) -> None:
        self._spark = spark
        self._folder = folder
        self._schema = schema
        self._files = 0
        self._began = time.time() - 1000
        folder.mkdir()

    def add(self, *rows: Row | str) -> None:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        # A stream must not see half a file: written beside, renamed into place.
        beside = self._folder.parent / f".{self._folder.name}-{self._files}"
        beside.write_text("".join(f"{line}\n" for line in lines))
        # Files come in the order of their times, which two of the same millisecond have not.
        os.utime(beside, (self._began + self._files, self._began + self._files))
        beside.rename(self._folder / f"{self._files:04}.json")
        self._files += 1

    def stream(self) -> Stream:
        options = {"maxFilesPerTrigger": "1"}
        return Stream.from_files(
            self._spark, str(self._folder), format="json", schema=self._schema, options=options
        )

    def batch(self) -> Stream:
        return Stream.from_files(
            self._spark, str(self._folder), format="json", schema=self._schema, streaming=False
        )


def rows(stream_or_frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    frame = stream_or_frame.dataframe if isinstance(stream_or_frame, Stream) else stream_or_frame
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=repr)


def in_table(spark: SparkSession, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return rows(spark.table(name), *columns)
