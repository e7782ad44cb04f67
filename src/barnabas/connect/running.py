"""Runs the flows of a file side by side, until they have ended, one has failed, or the run is told to end.

Called by `barnabas connect run`. What can be checked in seconds is checked before Spark starts.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from barnabas.connect.connector import Connector
from barnabas.connect.declaration import Declaration, Flow
from barnabas.connect.flow import FlowRun, Told
from barnabas.connect.option import ConnectError, no_such
from barnabas.spark.stopping import Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 2.0


def chosen_flows(declaration: Declaration, names: Sequence[str]) -> list[Flow]:
    """The flows of these names; all without."""
    for name in names:
        if name not in declaration.flows:
            raise ConnectError(f"{declaration.path}: {no_such('flow', name, list(declaration.flows))}")
    return [flow for name, flow in declaration.flows.items() if not names or name in names]


def checkpoint_of(declaration: Declaration, given: str) -> Path:
    """The folder for what flows know: as given, as the file says, or named after the file."""
    folder = given or declaration.options.checkpoint or f"checkpoints/{declaration.path.stem}"
    parts = urlsplit(folder)
    if parts.scheme not in ("", "file"):
        raise ConnectError(f"The checkpoint {folder} has to be a folder of this machine.")
    return Path(parts.path if parts.scheme else folder)


def check_flows(flows: Sequence[Flow]) -> list[str]:
    """What is wrong with what the flows talk to, a sentence each; empty if all of it is there."""
    problems: dict[str, None] = {}
    for flow in flows:
        ends: list[tuple[str, Connector]] = [(f"source {flow.options.source}", flow.source)]
        ends += [(f"sink {name}", sink) for name, sink in flow.sinks.items()]
        if flow.dead_letters is not None:
            ends.append((f"sink {flow.options.dead_letters}", flow.dead_letters))
        for name, end in ends:
            try:
                end.check()
            except ConnectError as error:
                problems[f"{name}: {error}"] = None
    return list(problems)


def run_flows(
    spark: "SparkSession",
    flows: Sequence[Flow],
    checkpoint: Path,
    *,
    once: bool,
    stop: Stop,
    tell: Callable[[Told], None],
) -> list[Told]:
    """How far each flow came. When one fails the others are stopped, and it is raised why."""
    running: list[FlowRun] = []
    try:
        for flow in flows:
            run = FlowRun(flow, spark, checkpoint, once=once, tell=tell, ended=stop.look)
            running.append(run.start())
        while not stop.told and any(not run.wait(0) for run in running):
            stop.wait(_LOOK_S)
    finally:
        for run in running:
            run.stop()
    for run in running:
        run.wait(0)
    return [run.told for run in running]
