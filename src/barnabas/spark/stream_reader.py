"""Reads topics as a stream: Spark keeps the offsets in its checkpoint, and asks here how far the next batch goes.

Always holds: a batch is what lies between two sets of offsets, so a batch that is repeated has the same records; what
the log has lost in between is an error, or a warning where failOnDataLoss is false, and never silence. Offsets carry
the ids of their topics: a topic that was deleted and made anew is another one, however long its log is.

What Spark asks depends on its version: from 4.2 on `limited_stream_reader` answers, before that `UnlimitedReader`.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.errors import BarnabasError
from barnabas.spark.options import OptionError, ReadOptions
from barnabas.spark.ranges import (
    JsonOffsets,
    Offsets,
    TopicIds,
    from_json,
    ids_in_json,
    limited,
    ranges_between,
    split,
    to_json,
)
from barnabas.spark.reader import Task, read_task, report_loss
from barnabas.spark.schema import Shape, checked
from barnabas.spark.survey import Survey
from barnabas.spark.worker import plainly


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
            start = self._survey.start_of(self._options.start, self._survey.partitions())
            return to_json(start, self._survey.ids)

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[Task]:
        with plainly():
            found = ranges_between(*self._readable(start, end))
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

    def _next(self, begin: JsonOffsets, most: int | None) -> JsonOffsets:
        """Where the batch ends that begins here, within its limit of offsets."""
        latest = self._latest = self._survey.latest_of_all()
        anew = self._made_anew(ids_in_json(begin), self._survey.ids)
        start = {each: at for each, at in from_json(begin).items() if each.topic not in anew}
        self._miss(start, latest)
        if self._target is not None:
            latest = {each: min(at, latest[each]) for each, at in self._target.items() if each in latest}
        begins = self._with_new_ones(start, latest)
        waiting = sum(max(at - begins[each], 0) for each, at in latest.items())
        if self._may_wait(waiting):
            end = {each: begins[each] for each in latest}
        else:
            end = latest if most is None else limited(begins, latest, most)
        # Where nothing has come, the same text: Spark would make a batch of another one.
        return begin if end == from_json(begin) and not anew else to_json(end, self._survey.ids)

    def _made_anew(self, before: TopicIds, now: TopicIds) -> set[str]:
        """Topics that are not those they were; told of."""
        anew = _changed(before, now)
        for topic in sorted(anew):
            report_loss(
                f"Topic {topic} was deleted and made anew after it was read: what it held in between is gone.",
                self._options,
            )
        return anew

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

    def _readable(self, first: JsonOffsets, last: JsonOffsets) -> tuple[Offsets, Offsets]:
        """The offsets between that the log still has."""
        there = set(self._survey.partitions(missing_is_error=False))
        before, planned = ids_in_json(first), ids_in_json(last)
        lost = self._made_anew(planned, self._survey.ids)
        end = {each: at for each, at in from_json(last).items() if each.topic not in lost}
        # Made anew between the two, which was told when the batch was planned: read from its beginning.
        anew = _changed(before, planned)
        start = {each: at for each, at in from_json(first).items() if each.topic not in anew}
        for gone in sorted(set(end) - there):
            if end[gone] > start.get(gone, 0):
                report_loss(
                    f"Partition {gone}, to be read up to {end[gone]}, is there no more.", self._options
                )
        end = {each: at for each, at in end.items() if each in there}
        begins = dict(start)
        for each, earliest in self._survey.earliest(list(end)).items():
            begin = start.get(each, earliest if each.topic in anew else 0)
            if end[each] < begin:
                report_loss(
                    f"The log of {each} ends at {end[each]}, before {begin}, up to where it was read: it has been made "
                    "anew.",
                    self._options,
                )
                begin = earliest
            elif begin < earliest and begin < end[each]:
                newest = min(earliest, end[each]) - 1
                report_loss(
                    f"Records {begin} to {newest} of {each} are gone: its log begins at {earliest}.",
                    self._options,
                )
            begins[each] = max(begin, earliest)
        return begins, end


def _changed(before: TopicIds, now: TopicIds) -> set[str]:
    """Topics whose id is another one; not those whose id is not known."""
    return {topic for topic, id_ in before.items() if now.get(topic, id_) != id_}


class UnlimitedReader(StreamReader):
    """For PySpark 4.1, which does not say where a batch begins when it asks where it ends: each takes all there is."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        limits = {"maxOffsetsPerTrigger": options.max_offsets, "minOffsetsPerTrigger": options.min_offsets}
        for name, value in limits.items():
            if value is not None:
                raise OptionError(f"{name} needs PySpark 4.2 or newer: before it a batch takes all there is.")
        self._reached: JsonOffsets = {}

    def latestOffset(self) -> JsonOffsets:
        with plainly():
            return self._next(self._reached, None)

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[Task]:
        self._reached = end
        with plainly():  # what went while nothing was asked: a query that has just started
            anew = self._made_anew(ids_in_json(start), ids_in_json(end))
            begin = {each: at for each, at in from_json(start).items() if each.topic not in anew}
            self._miss(begin, from_json(end))
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
