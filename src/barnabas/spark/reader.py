"""Reads a topic as a table: the driver plans ranges of offsets, executors read each from its leader, as Arrow.

Always holds: what is read is fixed when the query is planned, by the options of its `load()` alone; every record in it
comes once. Filters are left to Spark: it keeps one plan for all uses of a `load()`, so that the filters of one use
would hold for every other.
"""

import logging
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.errors import BarnabasError
from barnabas.spark.options import ReadOptions
from barnabas.spark.ranges import OffsetRange, Offsets, ranges_between, split
from barnabas.spark.schema import Shape, checked
from barnabas.spark.survey import Survey
from barnabas.spark.worker import plainly, settle_in
from barnabas.types import TopicPartition

log = logging.getLogger(__name__)


class Task(InputPartition):
    """What one Spark task reads."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(range_)

    @property
    def range(self) -> OffsetRange:
        found: OffsetRange = self.value
        return found


def report_loss(message: str, options: ReadOptions) -> None:
    """Records are gone that ought to have been read: an error, or a warning where that was asked for."""
    if options.fail_on_data_loss:
        raise BarnabasError(f"{message} To go on without them, say failOnDataLoss=false.")
    log.warning("%s Going on without them.", message)


def read_task(options: ReadOptions, shape: Shape, task: InputPartition) -> Iterator[Any]:
    """On an executor: the records of one task."""
    if not isinstance(task, Task):
        return  # Spark's way to say that there is nothing to read at all
    from barnabas.client.consumer.partition_reader import read_partition  # not needed for planning

    settle_in()
    with plainly():
        for batch in read_partition(
            options.bootstrap,
            *task.range,
            shape.columns,
            fail_on_data_loss=options.fail_on_data_loss,
            **{"client_id": "barnabas-spark", **options.client},
        ):
            yield shape(batch)


class BatchReader(DataSourceReader):
    """One query's read. Pickled after planning and sent to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._shape = Shape(checked(schema))

    def partitions(self) -> list[Task]:
        with plainly(), Survey(self._options) as survey:
            ranges = self._ranges(survey)
        options = self._options
        return [
            Task(each) for each in split(ranges, at_least=options.min_partitions, largest=options.max_records)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self._options, self._shape, partition)

    def _ranges(self, survey: Survey) -> list[OffsetRange]:
        options = self._options
        wanted = survey.partitions()
        if not wanted:
            raise BarnabasError(f"No topic matches {options.subscription}.")
        start, end = survey.start_of(options.start, wanted), survey.end_of(options.end, wanted)
        self._check(survey, start, end, wanted)
        return ranges_between(start, end)

    def _check(self, survey: Survey, start: Offsets, end: Offsets, wanted: list[TopicPartition]) -> None:
        """What was asked for has to be in the log, its beginning before its end."""
        if self._options.end.each and not self._options.end.is_time:
            latest = survey.latest(wanted)
            for each in wanted:
                if end[each] > latest[each]:
                    raise BarnabasError(
                        f"endingOffsets wants {each} up to {end[each]}, but its log ends at {latest[each]}."
                    )
        for each in wanted:
            if start[each] > end[each]:
                raise BarnabasError(
                    f"The read of {each} would begin at {start[each]}, beyond its end at {end[each]}: begin earlier, "
                    "or look whether the topic was made anew."
                )
        if self._options.start.each and not self._options.start.is_time:
            earliest = survey.earliest(wanted)
            for each in wanted:
                if start[each] < earliest[each]:
                    report_loss(
                        f"Records {start[each]} to {earliest[each] - 1} of {each} are gone: its log begins at "
                        f"{earliest[each]}.",
                        self._options,
                    )
                    start[each] = earliest[each]
