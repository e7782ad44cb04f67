"""Reads topics as a stream: Spark keeps the offsets in its checkpoint, and asks here how far the next batch goes.

Always holds: a batch is what lies between two sets of offsets, so a batch that is repeated has the same records; what
the log has lost in between is an error, or a warning where failOnDataLoss is false, and never silence.

What Spark asks depends on its version: from 4.2 on `limited_stream_reader` answers, before that `UnlimitedReader`.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.errors import BarnabasError
from barnabas.spark.options import OptionError, ReadOptions
from barnabas.spark.ranges import Offsets, from_json, limited, ranges_between, split, to_json
from barnabas.spark.reader import Task, read_task, report_loss
from barnabas.spark.schema import Shape, checked
from barnabas.spark.survey import Survey
from barnabas.spark.worker import plainly

JsonOffsets: TypeAlias = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader):
    """One query's source: lives in a process of its own beside the driver; a copy of it goes to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._shape = Shape(checked(schema))
        self._asking: Survey | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._last_batch_at = time.monotonic()

    def initialOffset(self) -> JsonOffsets:
        with plainly():
            return to_json(self._survey.start_of(self._options.start, self._survey.partitions()))

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[Task]:
        with plainly():
            found = ranges_between(*self._readable(from_json(start), from_json(end)))
        options = self._options
        return [
            Task(each) for each in split(found, at_least=options.min_partitions, largest=options.max_records)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self._options, self._shape, partition)

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    @property
    def _survey(self) -> Survey:
        if self._asking is None:
            self._asking = Survey(self._options, patient=True)
        return self._asking

    def _next(self, start: Offsets, most: int | None) -> Offsets:
        """Where the batch ends that begins here, and has so many offsets at most."""
        latest = self._latest = self._survey.latest_of_all()
        self._miss(start, latest)
        if self._target is not None:
            latest = {each: min(at, latest[each]) for each, at in self._target.items() if each in latest}
        begins = self._with_new_ones(start, latest)
        waiting = sum(max(at - begins[each], 0) for each, at in latest.items())
        if self._may_wait(waiting):
            return {each: at for each, at in start.items() if each in latest}
        return latest if most is None else limited(begins, latest, most)

    def _miss(self, start: Offsets, latest: Offsets) -> None:
        """Tell of partitions that were read and are there no more."""
        for gone in sorted(set(start) - set(latest)):
            report_loss(f"Partition {gone}, read up to {start[gone]}, is there no more.", self._options)

    def _may_wait(self, waiting: int) -> bool:
        least, now = self._options.min_offsets, time.monotonic()
        if least is None or self._target is not None:
            return False
        late = (now - self._last_batch_at) * 1000 >= self._options.max_delay_ms
        if waiting < least and not late:
            return True
        self._last_batch_at = now
        return False

    def _with_new_ones(self, start: Offsets, latest: Mapping[Any, int]) -> Offsets:
        """Partitions that have come since are read from their beginning."""
        new = [each for each in latest if each not in start]
        return {**start, **self._survey.earliest(new)} if new else start

    def _readable(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """The offsets between that the log still has."""
        there = set(self._survey.partitions(missing_is_error=False))
        for gone in sorted(set(end) - there):
            if end[gone] > start.get(gone, 0):
                report_loss(
                    f"Partition {gone}, to be read up to {end[gone]}, is there no more.", self._options
                )
        end = {each: at for each, at in end.items() if each in there}
        begins = dict(start)
        for each, earliest in self._survey.earliest(list(end)).items():
            begin = start.get(each, 0)
            if end[each] < begin:
                report_loss(
                    f"The log of {each} ends at {end[each]}, before {begin}, up to where it was read: it has been made "
                    "anew.",
                    self._options,
                )
                begin = earliest
            elif begin < earliest and begin < end[each]:
                last = min(earliest, end[each]) - 1
                report_loss(
                    f"Records {begin} to {last} of {each} are gone: its log begins at {earliest}.",
                    self._options,
                )
            begins[each] = max(begin, earliest)
        return begins, end


class UnlimitedReader(StreamReader):
    """For PySpark 4.1, which does not say where a batch begins when it asks where it ends: each takes all there is."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        limits = {"maxOffsetsPerTrigger": options.max_offsets, "minOffsetsPerTrigger": options.min_offsets}
        for name, value in limits.items():
            if value is not None:
                raise OptionError(f"{name} needs PySpark 4.2 or newer: before it a batch takes all there is.")
        self._reached: Offsets = {}

    def latestOffset(self) -> JsonOffsets:
        with plainly():
            return to_json(self._next(self._reached, None))

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[Task]:
        begin, self._reached = from_json(start), from_json(end)
        with plainly():
            self._miss(begin, self._reached)  # what went while nobody looked: a query that has just started
        return super().partitions(start, end)


class RefusingReader(DataSourceStreamReader):
    """For PySpark 4.1, which loses an error that comes before there is a reader: tells it when it is first asked."""

    def __init__(self, error: BarnabasError) -> None:
        self._error = error

    def initialOffset(self) -> JsonOffsets:
        return self._refuse()

    def latestOffset(self) -> JsonOffsets:
        return self._refuse()

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[Task]:
        return self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._refuse()

    def _refuse(self) -> NoReturn:
        with plainly():
            raise self._error
