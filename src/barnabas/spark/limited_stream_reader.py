"""A stream whose batches have limits, and which ends where it was told to (Trigger.AvailableNow).

PySpark 4.2 and newer. Only imported where PySpark has these words; see `installed.py`.
"""

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from barnabas.spark.ranges import JsonOffsets, to_json
from barnabas.spark.stream_reader import StreamReader
from barnabas.spark.worker import plainly


class LimitedReader(StreamReader, SupportsTriggerAvailableNow):
    """Tells Spark which limit holds, and keeps to the one that Spark says."""

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with plainly():
            return self._next(start, most)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> JsonOffsets | None:
        return None if self._latest is None else to_json(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        with plainly():
            self._target = self._survey.latest(self._survey.partitions(missing_is_error=False))
