"""Reads a topic as a table: the driver plans ranges of offsets, executors read each from its leader, as Arrow.

Always holds: what is read is fixed when the query is planned; every record in it that passes the filters comes once.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from barnabas.errors import BarnabasError
from barnabas.spark.bounds import BoundsState
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
    from barnabas.client.partition_reader import read_partition  # not needed for planning

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


class _Push:
    """`pushFilters`, for when Spark asks for it.

    Where spark.sql.python.filterPushdown.enabled is false, the default, Spark does not, and refuses sources that offer
    it. Ours just reads everything then: it passes for a source that does not offer it.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, bounds: BoundsState) -> None:
        self._bounds = bounds

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._bounds.take(filters)


class BatchReader(DataSourceReader):
    """One query's read. Pickled after planning and sent to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._shape = Shape(checked(schema))
        self._bounds = BoundsState()

    @property
    def pushFilters(self) -> "_Push":
        return _Push(self._bounds)

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
        options, bounds = self._options, self._bounds
        everything = survey.partitions()
        if not everything:
            raise BarnabasError(f"No topic matches {options.subscription}.")
        start, end = survey.start_of(options.start, everything), survey.end_of(options.end, everything)
        wanted = [each for each in everything if bounds.admits(each)]
        self._check(survey, start, end, wanted)
        if bounds.first_offset is not None:
            start = {each: max(start[each], bounds.first_offset) for each in wanted}
        if bounds.end_offset is not None:
            end = {each: min(end[each], bounds.end_offset) for each in wanted}
        return ranges_between(*self._within_times(survey, start, {each: end[each] for each in wanted}))

    def _within_times(self, survey: Survey, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """Cut off what an index lookup shows to be too early, or too late."""
        bounds = self._bounds
        if bounds.since_ms is not None:
            found = survey.first_since(dict.fromkeys(end, max(bounds.since_ms, 0)))
            start = {each: max(start[each], found.get(each, end[each])) for each in end}
        if bounds.before_ms is not None:
            # Where producers stamp, a record may be older than those before it: the end is only known with a promise.
            promised = self._options.max_disorder_ms
            ordered = set() if promised == 0 else survey.stamps_on_append({each.topic for each in end})
            times = {
                each: max(bounds.before_ms + (0 if each.topic in ordered else promised or 0), 0)
                for each in end
                if each.topic in ordered or promised is not None
            }
            found = survey.first_since(times)
            end = {each: min(at, found.get(each, at)) for each, at in end.items()}
        return start, end

    def _check(self, survey: Survey, start: Offsets, end: Offsets, wanted: list[TopicPartition]) -> None:
        """What was asked for by number has to be in the log."""
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
        if self._options.end.each and not self._options.end.is_time:
            latest = survey.latest(wanted)
            for each in wanted:
                if end[each] > latest[each]:
                    raise BarnabasError(
                        f"endingOffsets wants {each} up to {end[each]}, but its log ends at {latest[each]}."
                    )
