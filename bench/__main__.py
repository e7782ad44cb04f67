"""The command line of the bench: chooses what is measured, shows how far it is, writes the record.

`make bench` runs it. Both brokers, their data and the load generator are gone when it ends, however it ends.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from tools.kafka_jars import KAFKA_VERSION, jars
from tools.maven import NoJarsError

from bench import barnabas_server, kafka, loadgen, plots, report
from bench.measure import (
    KAFKA,
    OURS,
    Case,
    Readings,
    SideState,
    Size,
    Workload,
    compares_brokers,
    interleave,
    sides_of,
)
from bench.page_cache import PageCache
from bench.server import BrokerFailedError, Server
from bench.warm_up import SECONDS as WARM_UP_SECONDS
from bench.warm_up import warm_up
from bench.workloads import ALL

ROOT = Path(__file__).resolve().parent.parent
RECORD, IMAGES = ROOT / "bench" / "RESULTS.md", ROOT / "docs" / "img"
ASIDE = ROOT / "bench" / "out"
NEEDED_GB = 16


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", action="store_true", help="about five minutes: less of everything, fewer rounds"
    )
    size.add_argument("--full", action="store_true", help="the whole grid of sizes, partitions and codecs")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only this workload; may be given again"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of every workload, 1 to 50")
    parser.add_argument(
        "--list", action="store_true", help="name the workloads and what they take, then stop"
    )
    parser.add_argument(
        "--control", action="store_true", help="Kafka beside Kafka: how far ratios stray from 1"
    )
    parser.add_argument(
        "--record", action="store_true", help="write bench/RESULTS.md even when the run is partial"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="where the brokers keep their data meanwhile"
    )
    chosen = parser.parse_args(argv)
    unknown = set(chosen.only or ()) - {workload.NAME for workload in ALL}
    if unknown:
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(w.NAME for w in ALL)}")
    if chosen.rounds is not None and not 1 <= chosen.rounds <= 50:
        parser.error("--rounds takes 1 to 50")
    return chosen


def main(argv: Sequence[str]) -> int:
    chosen = arguments(argv)
    size = Size.QUICK if chosen.quick else Size.FULL if chosen.full else Size.DEFAULT
    workloads = [w for w in ALL if not chosen.only or w.NAME in chosen.only]
    console = Console(stderr=True)
    estimates = {w.NAME: _estimate(w, size, chosen.rounds) for w in workloads}
    if chosen.list:
        for workload in workloads:
            print(f"{workload.NAME:<12} {estimates[workload.NAME] / 60:5.1f} min  {workload.TITLE}")
        return 0
    try:
        return _run(chosen, size, workloads, estimates, console)
    except (NoJarsError, BrokerFailedError, loadgen.GeneratorFailedError) as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("stopped; nothing was written")
        return 130


def _run(
    chosen: argparse.Namespace,
    size: Size,
    workloads: Sequence[Workload],
    estimates: dict[str, float],
    console: Console,
) -> int:
    with_kafka = any(compares_brokers(workload) for workload in workloads)
    if with_kafka:
        jars()
    total_s = sum(estimates.values()) + 2 * WARM_UP_SECONDS[size]
    console.print(f"about {total_s / 60:.0f} minutes; load generator: {loadgen.described()}")
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    failures: list[str] = []
    sections: list[tuple[Workload, list[Readings]]] = []
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=chosen.data) as folder,
        _progress(console) as bar,
    ):
        _check_room(Path(folder))
        task = bar.add_task("filling the page cache", total=total_s)
        pages = PageCache(Path(folder))
        sides = _sides(Path(folder), chosen.control, size, lambda name: _warmed(bar, task, name, size))
        try:
            for workload in workloads:
                rounds = chosen.rounds or workload.rounds(size)

                def step(side: str, case: Case, workload: Workload = workload) -> None:
                    bar.update(
                        task, advance=case.seconds, description=f"{workload.NAME}: {case.name} ({side})"
                    )

                def failure(side: str, case: Case, error: Exception, workload: Workload = workload) -> None:
                    failures.append(report.failed(workload, case, side, error))
                    bar.console.print(f"[red]{failures[-1]}[/red]", highlight=False)

                cases, started = workload.cases(size), time.monotonic()
                compared = sides_of(workload, sides)
                try:
                    measured = interleave(
                        workload,
                        cases,
                        compared,
                        rounds,
                        before=pages.fill,
                        on_step=step,
                        on_failure=failure,
                    )
                finally:
                    _stop_own(compared, sides)
                sections.append((workload, measured))
                bar.console.print(f"{workload.TITLE}: {time.monotonic() - started:.0f} s", highlight=False)
        finally:
            for side in sides.values():
                side.stop()
    whole = size is not Size.QUICK and not chosen.only and not chosen.control
    record, images = (RECORD, IMAGES) if whole or chosen.record else (ASIDE / "RESULTS.md", ASIDE)
    facts = [*_facts(size, chosen.control), ("duration", f"{(time.monotonic() - began) / 60:.0f} minutes")]
    _write(record, images, facts, sections, failures, sides[OURS].name)
    console.print(f"written: {record.relative_to(ROOT)}")
    return 1 if failures else 0


def _write(
    record: Path,
    images: Path,
    facts: Sequence[tuple[str, str]],
    sections: Sequence[tuple[Workload, Sequence[Readings]]],
    failures: Sequence[str],
    ours: str,
) -> None:
    rows = [row for workload, readings in sections for row in report.rows(workload, readings)]
    drawn = plots.draw(rows, images)
    record.parent.mkdir(parents=True, exist_ok=True)
    prefix = os.path.relpath(images, record.parent)
    links = [f"{prefix}/{name}" for name in drawn]
    record.write_text(report.markdown(facts, sections, failures, links, ours))


def _stop_own(compared: Mapping[str, SideState], brokers: Mapping[str, SideState]) -> None:
    """What a workload compares beside the brokers ends with it."""
    for side in compared.values():
        if side not in brokers.values():
            side.stop()


def _sides(folder: Path, control: bool, size: Size, warmed: Callable[[str], None]) -> dict[str, SideState]:
    ours = kafka.start if control else barnabas_server.start
    sides = {
        KAFKA: SideState("Apache Kafka", kafka.start, folder / KAFKA),
        OURS: SideState("Kafka again" if control else "Barnabas", ours, folder / OURS),
    }
    for side in sides.values():

        def on_start(server: Server, name: str = side.name) -> None:
            warm_up(server, size)
            warmed(name)

        side.on_start = on_start
    return sides


def _estimate(workload: Workload, size: Size, rounds: int | None) -> float:
    cases = workload.cases(size)
    wanted = rounds or workload.rounds(size)
    measured_s = sum(case.seconds * min(case.most_rounds, wanted) for case in cases)
    warm_up_s = 0.0 if workload.FRESH else cases[0].seconds
    return 2 * (measured_s + warm_up_s)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)


def _warmed(bar: Progress, task: int, name: str, size: Size) -> None:
    bar.update(task, advance=WARM_UP_SECONDS[size], description=f"warming up {name}")  # type: ignore[arg-type]


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free / 1e9
    if free < NEEDED_GB:
        raise BrokerFailedError(
            f"{folder} has {free:.0f} GB free and the bench needs {NEEDED_GB}: choose another with --data DIR"
        )


def _facts(size: Size, control: bool) -> list[tuple[str, str]]:
    model = next(
        (line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ""
    )
    memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    import confluent_kafka

    return [
        ("machine", f"{os.cpu_count()} cores ({model.partition(': ')[2]}), {memory_gb:.0f} GB, loopback"),
        ("system", f"Linux {platform.release()}"),
        ("Python", platform.python_version()),
        ("Java", kafka.java_version()),
        (
            "Apache Kafka",
            f"{KAFKA_VERSION}, one KRaft node, 1 GiB heap, defaults but for files deleted at once",
        ),
        ("clients", f"librdkafka {confluent_kafka.libversion()[0]}; load generator: {loadgen.described()}"),
        ("mode", f"{size.value}{', Kafka on both sides (control)' if control else ''}"),
        ("date", time.strftime("%Y-%m-%d", time.gmtime())),
    ]


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
