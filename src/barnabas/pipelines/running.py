"""Runs a pipeline: one streaming query a sink, each with its own checkpoint, until it is stopped or has caught up.

Called by `barnabas pipeline run`, by `main` under spark-submit, by the demo and by tests. Always holds: what can be
checked in seconds (Java, master, broker, topics) is checked before Spark starts; when one query fails the others are
stopped, and one sentence says why.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from barnabas.errors import BarnabasError
from barnabas.pipelines.belonging import claim, default_checkpoint, owner_of
from barnabas.pipelines.declaration import Pipeline
from barnabas.pipelines.places import Surroundings, Topic
from barnabas.spark.sentences import sentence_of
from barnabas.spark.stopping import Stop, on_signals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_LOOK_S = 2.0
_TOLD_S = 30.0
"""What the last batch did is told by Spark after the end of its query, on a busy machine seconds after."""

_TRIES = 5
_TOO_SLOW = "Python worker failed to connect back"
_BROKER_TIMEOUT_MS = 5_000


@dataclass(frozen=True, slots=True)
class Run:
    """How a pipeline is to be run."""

    bootstrap: str = "localhost:9092"
    parameters: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    once: bool = False
    starting: str = "earliest"
    every: str = ""
    master: str | None = None
    packages: Sequence[str] = ()
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    reset: bool = False

    def checkpoint_of(self, pipeline: Pipeline) -> str:
        given = self.checkpoint.rstrip("/")
        return given or default_checkpoint(pipeline, pipeline.settings(self.parameters))


@dataclass(frozen=True, slots=True)
class Ended:
    """What a run came to."""

    rows: Mapping[str, int]
    seconds: float
    stopped: bool


def run(pipeline: Pipeline, how: Run, *, stop: "Stop | None" = None) -> Ended:
    """Check, start Spark, run to the end, stop Spark. `stop` ends it, and so do Ctrl-C and SIGTERM."""
    settings = pipeline.settings(how.parameters)
    check_topics(pipeline, how, settings)
    from barnabas.spark.session import start_session

    wanted = dict(how.spark_settings)
    if how.packages:
        wanted["spark.jars.packages"] = ",".join(how.packages)
    spark = start_session(f"barnabas {pipeline.name}", master=how.master, settings=wanted)
    try:
        return run_on(spark, pipeline, how, stop=stop)
    finally:
        spark.stop()


def run_on(
    spark: "SparkSession",
    pipeline: Pipeline,
    how: Run,
    *,
    stop: "Stop | None" = None,
    out: TextIO | None = None,
) -> Ended:
    """Run on a session that is there, and leave it as it was. Progress goes to `out`, or to stderr."""
    from barnabas.spark import register
    from barnabas.spark.session import make_active

    register(spark)
    make_active(spark)
    settings = pipeline.settings(how.parameters)
    checkpoint = how.checkpoint_of(pipeline)
    around = Surroundings(how.bootstrap, how.starting, checkpoint, how.once)
    began = time.monotonic()
    with _told(pipeline):
        owner = owner_of(pipeline, settings)
        claim(spark, checkpoint, owner, is_default=not how.checkpoint, reset=how.reset)
        outputs = pipeline.outputs(spark, around, settings)
    still = {name: rows for name, rows in outputs.items() if not rows.isStreaming}
    _, sinks = pipeline.places(settings)
    with _told(pipeline):
        for name, rows in still.items():
            sinks[name].write(rows, around)
    streaming = {name: rows for name, rows in outputs.items() if rows.isStreaming}
    if not streaming:
        return Ended({}, time.monotonic() - began, stopped=False)
    stop = stop or Stop()
    with on_signals(stop):
        return _run_streams(spark, pipeline, how, streaming, around, stop, out, began)


def _run_streams(
    spark: "SparkSession",
    pipeline: Pipeline,
    how: Run,
    streaming: Mapping[str, "DataFrame"],
    around: Surroundings,
    stop: Stop,
    out: TextIO | None,
    began: float,
) -> Ended:
    from barnabas.pipelines.progress import Progress
    from barnabas.spark.checkpoints import start_query

    _, sinks = pipeline.places(pipeline.settings(how.parameters))
    progress = Progress(list(streaming), stop.look, out)
    spark.streams.addListener(progress)
    queries: dict[str, StreamingQuery] = {}

    def begin(name: str) -> None:
        writer = sinks[name].writer(streaming[name], around).queryName(f"{pipeline.name} {name}")
        query = start_query(spark, writer.trigger(**_trigger(how)), f"{around.checkpoint}/{name}")
        progress.expect(name, str(query.runId))
        queries[name] = query

    try:
        with _told(pipeline):
            for name in streaming:
                begin(name)
            _wait(queries, stop, begin)
            for query in queries.values():
                if (error := query.exception()) is not None:
                    raise error
    finally:
        for query in queries.values():
            query.stop()
        if queries:
            progress.all_ended.wait(_TOLD_S)
        spark.streams.removeListener(progress)
        progress.done()
    rows_of = {name: state.rows for name, state in progress.states.items()}
    return Ended(rows_of, time.monotonic() - began, stopped=stop.told)


@contextmanager
def _told(pipeline: Pipeline) -> Iterator[None]:
    """Whatever Spark throws becomes one sentence."""
    try:
        yield
    except BarnabasError:
        raise
    except Exception as error:
        raise BarnabasError(f"Pipeline {pipeline.name} failed: {sentence_of(error)}.") from error


def _trigger(how: Run) -> dict[str, Any]:
    if how.once:
        return {"availableNow": True}
    return {"processingTime": how.every or "0 seconds"}


def _wait(queries: Mapping[str, "StreamingQuery"], stop: Stop, begin: Callable[[str], None]) -> None:
    """Until all queries ended, one failed, or the run is told to end.

    Spark's listener tells; since it falls silent when Spark's process dies, we also look now and then.
    """
    tries: Counter[str] = Counter()
    while not stop.told:
        failed = {name: error for name, query in queries.items() if (error := query.exception()) is not None}
        for name, error in failed.items():
            # Spark gives a Python process ten seconds to start, which is not enough on a machine that is very busy.
            if _TOO_SLOW not in str(error) or tries[name] == _TRIES:
                return
            tries[name] += 1
            begin(name)
        if not any(query.isActive for query in queries.values()):
            return
        stop.wait(_LOOK_S)


def check_topics(pipeline: Pipeline, how: Run, settings: Mapping[str, Any]) -> None:
    """A broker that is down, or a topic that is not there, is told of before Spark takes seconds to start."""
    sources, sinks = pipeline.places(settings)
    wanted = [place for place in (*sources.values(), *sinks.values()) if isinstance(place, Topic)]
    if not wanted:
        return
    from barnabas import Admin

    with Admin(bootstrap_servers=how.bootstrap, request_timeout_ms=_BROKER_TIMEOUT_MS) as admin:
        there = set(admin.list_topics())
    for place in sources.values():
        if isinstance(place, Topic) and "subscribePattern" not in place.options:
            for name in place.name.split(","):
                if name.strip() not in there:
                    raise BarnabasError(
                        f"There is no topic {name.strip()!r} at {how.bootstrap} for pipeline {pipeline.name} to "
                        f"read: make it with `barnabas topic create {name.strip()}`, or --set another."
                    )
