"""`barnabas demo`: a broker, made-up visitors of a shop, the pipeline that follows them, and what it finds.

Everything is in a temporary folder and goes with it. Each second is a minute of the visitors; it ends by itself.
"""

import io
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.cli.exits import ends_well

RATE = 1200.0
SPEED = 60.0
_LOOK_S = 0.5
_MORE_S = 0.1
_WINDOW_S = 300
_CATCH_UP_S = 150.0
_QUIET_S = 8.0
_PARAMETERS = {"gap": "3 minutes", "window": "5 minutes", "late": "2 minutes", "top": "3"}


@ends_well
def demo(
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=1, help="How long visitors come; each second is a minute of theirs."),
    ] = 40.0,
    master: Annotated[str, typer.Option("--master", help="Where Spark runs.")] = "local[2]",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Other visitors.")] = 1,
) -> None:
    """See a pipeline at work: broker, visitors, sessions and top pages, in one command that ends by itself.

    \b
    barnabas demo
    barnabas demo --seconds 120
    """
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-demo-")))
        bootstrap = stack.enter_context(_broker(folder))
        typer.echo(f"A broker on {bootstrap}, up in {time.monotonic() - began:.2f} s. Spark is starting ...")
        spark = stack.enter_context(_spark(master, folder))
        typer.echo(
            f"Spark on {master}. Visitors come: {RATE:,.0f} events a second, and a minute passes in each.\n"
        )
        visitors = stack.enter_context(Visitors(bootstrap, seed, seconds))
        found = stack.enter_context(Found(bootstrap, folder / "pages"))
        following = stack.enter_context(Following(spark, bootstrap, folder))
        deadline = time.monotonic() + seconds + _CATCH_UP_S
        while following.is_running and time.monotonic() < deadline:
            found.tell()
            if visitors.are_gone and found.sessions and found.quiet_s > _QUIET_S:
                break
        following.check()
        typer.echo(
            f"\n{visitors.sent:,} events became {found.sessions:,} sessions and the top pages of "
            f"{len(found.windows)} windows, in {time.monotonic() - began:.0f} s all in all.\n"
            "Try it yourself: barnabas up; barnabas generate activity; barnabas pipeline run activity-tracking"
        )


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    from barnabas import Admin
    from barnabas.testing import Broker

    with Broker({"num.partitions": "2"}, data=folder / "data") as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            for name in ("activity", "sessions"):
                admin.create_topic(name, partitions=2)
        yield broker.bootstrap


@contextmanager
def _spark(master: str, folder: Path) -> Iterator[Any]:
    from barnabas.spark.session import start_session

    settings = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "spark"),
    }
    spark = start_session("barnabas demo", master=master, settings=settings)
    try:
        yield spark
    finally:
        spark.stop()


class Visitors:
    """A thread that sends what visitors do, for as long as the demo wants."""

    def __init__(self, bootstrap: str, seed: int, seconds: float) -> None:
        self.sent = 0
        self._bootstrap = bootstrap
        self._seed = seed
        self._count = int(seconds * RATE)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, name="visitors", daemon=True)

    @property
    def are_gone(self) -> bool:
        return not self._thread.is_alive()

    def _send(self) -> None:
        from barnabas import Producer
        from barnabas.generate import Clock, streams
        from barnabas.generate.sending import paced, send

        clock = Clock(int(time.time() * 1000), RATE / SPEED)
        chunks = streams()["activity"].chunks(self._seed, clock, self._count)
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            send(producer, "activity", paced(chunks, RATE, stop=self._stop), self._add)

    def _add(self, rows: int) -> None:
        self.sent += rows

    def __enter__(self) -> "Visitors":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Found:
    """What the pipeline has found so far: sessions from their topic, top pages from their table."""

    def __init__(self, bootstrap: str, pages: Path) -> None:
        from barnabas import Consumer

        self.sessions = 0
        self.windows: set[datetime] = set()
        self._pages = pages
        self._files: set[Path] = set()
        self._news_at = time.monotonic()
        self._began = time.time()
        self._consumer = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        self._consumer.assign(self._consumer.partitions_for("sessions"))

    def __enter__(self) -> "Found":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def quiet_s(self) -> float:
        """How long nothing new has come."""
        return time.monotonic() - self._news_at

    def tell(self) -> None:
        """Wait a moment for more, and print it."""
        records = list(self._consumer.poll(_LOOK_S))
        while more := self._consumer.poll(_MORE_S):
            records += more
        if records:
            self._news_at = time.monotonic()
            self.sessions += len(records)
            _print_sessions([json.loads(record.value or b"{}") for record in records], self.sessions)
        for window, pages in sorted(self._new_windows().items()):
            self._news_at = time.monotonic()
            # Events that come hours late make windows of the past, with a view or two in each.
            if window.timestamp() + _WINDOW_S < self._began:
                continue
            self.windows.add(window)
            shown = ", ".join(f"{page} {views:,}" for _, page, views in sorted(pages))
            typer.echo(f"{window:%H:%M}  top pages of five minutes: {shown}")

    def _new_windows(self) -> dict[datetime, list[tuple[int, str, int]]]:
        """The rows of the table's files that were not read yet."""
        import pyarrow.parquet as pq

        found: dict[datetime, list[tuple[int, str, int]]] = {}
        for path in set(self._pages.glob("*.parquet")) - self._files:
            self._files.add(path)
            for row in pq.read_table(path).to_pylist():
                found.setdefault(row["began"], []).append((row["rank"], row["page"], row["views"]))
        return found


def _print_sessions(sessions: list[dict[str, Any]], so_far: int) -> None:
    longest = max(sessions, key=lambda session: session["events"])
    at = datetime.fromisoformat(longest["ended"]).astimezone(UTC)
    typer.echo(
        f"{at:%H:%M}  {len(sessions):,} sessions are over ({so_far:,} so far); the longest: {longest['user']} with "
        f"{longest['views']} views, {longest['searches']} searches and {longest['clicks']} clicks "
        f"in {longest['seconds'] / 60:.1f} minutes"
    )


class Following:
    """A thread that runs the pipeline until it is told to stop."""

    def __init__(self, spark: Any, bootstrap: str, folder: Path) -> None:
        from barnabas.pipelines.finding import find
        from barnabas.pipelines.running import Run
        from barnabas.spark.stopping import Stop

        parameters = {**_PARAMETERS, "output": str(folder / "pages")}
        self._how = Run(bootstrap, parameters, checkpoint=str(folder / "checkpoint"))
        self._pipeline = find("activity-tracking")
        self._spark = spark
        self._stop = Stop()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    def _run(self) -> None:
        from barnabas.pipelines.running import run_on

        try:
            run_on(self._spark, self._pipeline, self._how, stop=self._stop, out=io.StringIO())
        except BaseException as error:
            self._failure = error

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def check(self) -> None:
        """Raise what the pipeline failed of."""
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> "Following":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.now()
        self._thread.join()
