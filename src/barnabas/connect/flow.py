"""Runs a flow: batches from its source to its sinks, until it is stopped or has taken what is there.

Used by `barnabas connect run` and by tests. Always holds: a batch is done when every sink has it; one that was begun
comes again with the same id; of two batches of a flow never more than one is under way.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.connect.connector import BAD, Batch, PolledSource, Step, StreamSource
from barnabas.connect.declaration import Flow
from barnabas.connect.option import ConnectError
from barnabas.connect.positions import Positions, origin_of
from barnabas.errors import BarnabasError
from barnabas.spark.sentences import sentence_of
from barnabas.spark.session import make_active

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.connect.listening import Listener
    from barnabas.streams import Run

_STOP_TIMEOUT_S = 30.0
_LISTEN_TIMEOUT_S = 30.0
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


@dataclass(frozen=True, slots=True)
class Told:
    """What a flow has done so far."""

    flow: str
    batches: int
    rows: int
    batch_seconds: float


class FlowRun:
    """A flow that runs, in a thread of its own."""

    def __init__(
        self,
        flow: Flow,
        spark: "SparkSession",
        checkpoint: Path,
        *,
        once: bool = False,
        tell: Callable[[Told], None] = lambda told: None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.flow = flow
        self.told = Told(flow.name, 0, 0, 0.0)
        self.error: BarnabasError | None = None
        self._spark = spark
        self._folder = checkpoint / flow.name
        self._once = once
        self._tell = tell
        self._ended = ended
        self._stopping = threading.Event()
        self._writing = threading.Lock()
        self._written = -1
        self._committed = -1
        self._commit = threading.Condition()
        self._query: Run | None = None
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._run, name=f"flow-{flow.name}", daemon=True)

    def start(self) -> "FlowRun":
        """Begins; raises at once what can be known at once."""
        self._origin = origin_of(self._folder)
        if isinstance(self.flow.source, StreamSource):
            self._query = self._start_query(self.flow.source)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the flow, after the batch that is under way if that takes no longer than some seconds."""
        self._stopping.set()
        if self._query is not None:
            between_batches = self._writing.acquire(timeout=_STOP_TIMEOUT_S)
            try:
                # Else Spark would not know that the batch is done, and it would come again at the next start.
                with self._commit:
                    self._commit.wait_for(lambda: self._committed >= self._written, _LISTEN_TIMEOUT_S)
                self._query.stop()
            finally:
                if between_batches:
                    self._writing.release()
        self._thread.join(_STOP_TIMEOUT_S)

    def wait(self, timeout: float | None = None) -> bool:
        """Until the flow has ended; True if it has. Raises if it failed."""
        self._thread.join(timeout)
        if self.error is not None:
            raise self.error
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            if self._query is not None and self._listener is not None:
                self._follow(self._query, self._listener)
            elif isinstance(self.flow.source, PolledSource):
                make_active(self._spark)
                self._poll(self.flow.source)
        except BarnabasError as error:
            if not self._stopping.is_set():
                self.error = ConnectError(f"Flow {self.flow.name}: {error}")
        except Exception as error:
            self.error = ConnectError(f"Flow {self.flow.name}: {sentence_of(error)}.")
        finally:
            self._ended()

    # Sources that Spark streams.

    def _start_query(self, source: StreamSource) -> "Run":
        from barnabas.connect.listening import Listener

        stream = source.stream(self._spark, self._bad)
        self._split(stream.dataframe)  # tells of wrong expressions before anything runs
        output = stream.to_batches(self.flow.name, self._write_streamed)
        every = None if self._once else self.flow.options.every
        listener = Listener(self._hear)
        self._spark.streams.addListener(listener)
        try:
            # `spark`, because beside it are files of ours.
            running = output.run(checkpoint=str(self._folder / "spark"), once=self._once, every=every)
        except BarnabasError:
            self._spark.streams.removeListener(listener)
            raise
        if running.query is not None:
            listener.follow(str(running.query.runId))
        self._listener = listener
        return running

    def _write_streamed(self, frame: "DataFrame", number: int) -> None:
        with self._writing:
            self._write(frame, number)
            self._written = number

    def _hear(self, number: int, rows: int, seconds: float) -> None:
        with self._commit:
            self._committed = number
            self._commit.notify_all()
        if rows:
            self._note(rows, seconds)

    def _follow(self, running: "Run", listener: "Listener") -> None:
        try:
            running.wait()
        finally:
            listener.heard_the_end.wait(_LISTEN_TIMEOUT_S)
            self._spark.streams.removeListener(listener)

    # Sources that are polled.

    def _poll(self, source: PolledSource) -> None:
        positions = Positions(self._folder / "steps")
        while not self._stopping.is_set():
            standing = positions.standing()
            step = standing.planned or source.plan(self._spark, standing.position)
            if step is None:
                if self._once:
                    return
                self._stopping.wait(_seconds(self.flow.options.every))
                continue
            if standing.planned is None:
                positions.plan(standing.number, step)
            self._write_step(source, step, standing.number)
            positions.done(standing.number)

    def _write_step(self, source: PolledSource, step: Step, number: int) -> None:
        began = time.monotonic()
        self._write(source.read(self._spark, step.plan, self._bad), number)
        self._note(int(step.plan["rows"]), time.monotonic() - began)

    # What both share.

    @property
    def _bad(self) -> str:
        return BAD if self.flow.dead_letters is not None else "fail"

    def _write(self, frame: "DataFrame", number: int) -> None:
        batch = Batch(self._origin, number)
        actions = len(self.flow.sinks) + (BAD in frame.columns)
        if actions > 1:
            frame = frame.persist()
        try:
            good, bad = self._split(frame)
            if bad is not None:
                self._bury(bad, batch, "rows")
            for name, sink in self.flow.sinks.items():
                keeps = self.flow.dead_letters is not None
                refused = sink.write(good, batch, keep_refused=keeps)
                if refused is not None:
                    self._bury(refused, batch, name)
                    refused.unpersist()
        finally:
            if actions > 1:
                frame.unpersist()

    def _split(self, frame: "DataFrame") -> tuple["DataFrame", "DataFrame | None"]:
        """The rows as the sinks get them, and those that do not fit their schema."""
        from pyspark.sql import functions

        from barnabas.streams import Stream

        bad = None
        good = Stream.of(frame)
        if BAD in frame.columns:
            reason = functions.lit("it does not fit the schema")
            bad = frame.filter(functions.col(BAD).isNotNull()).select(
                functions.col(BAD).alias("value"), reason.alias("reason")
            )
            good = good.filter(functions.col(BAD).isNull()).drop(BAD)
        if self.flow.options.where:
            good = good.filter(self.flow.options.where)
        if self.flow.options.select:
            good = good.select(*(functions.expr(each) for each in self.flow.options.select))
        return good.dataframe, bad

    def _bury(self, rows: "DataFrame", batch: Batch, part: str) -> None:
        """Rows that cannot be used go to the dead letters; `part` keeps several burials of a batch apart."""
        from pyspark.sql import functions

        sink = self.flow.dead_letters
        if sink is None or rows.isEmpty():
            return
        letters = rows.select("value", "reason", functions.lit(self.flow.name).alias("flow"))
        sink.write(letters, Batch(f"{batch.origin}-{part}", batch.number))

    def _note(self, rows: int, seconds: float) -> None:
        done = self.told
        self.told = Told(done.flow, done.batches + 1, done.rows + rows, seconds)
        self._tell(self.told)


def _seconds(every: str) -> float:
    number, unit = every.split()
    return int(number) * _SECONDS[unit.rstrip("s")]
