"""A streaming query that is killed again and again has every record once in the end, and misses none."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas import Producer
from barnabas.spark.installed import has_read_limits
from tests.brokers import Brokers
from tests.deadline import eventually

pytestmark = [pytest.mark.java, pytest.mark.slow(seconds=150), pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parent.parent.parent
KILLS = 10
PARTITIONS = 3
RECORDS = 60_000
OFFSETS_A_BATCH = 500
"""So few that all kills come before everything is read."""

LIMIT_S = 180


@contextmanager
def driver(broker: Brokers, topic: str, folder: Path, how: str) -> Iterator[subprocess.Popen[bytes]]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tests.spark.driver_to_kill", broker.bootstrap, topic, str(folder), how]
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        # Spark's JVM is in the same session: all of it goes at once, as when a machine does.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT_S)


def test_killed_at_ten_points_every_record_is_there_once(
    spark: Any, broker: Brokers, producer: Producer, topic: Callable[..., str], tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    name = topic(partitions=PARTITIONS)
    sent = 0

    def send(count: int) -> bool:
        nonlocal sent
        for i in range(sent, sent + count):
            producer.send(name, b"%d" % i, partition=i % PARTITIONS)
        producer.flush()
        sent += count
        return True

    # Spark 4.1 reads all there is in one batch: there, records come while it reads.
    at_once, meanwhile = (RECORDS, 0) if has_read_limits() else (1, 3)
    send(at_once)
    logs = {kind: tmp_path / "checkpoint" / kind for kind in ("offsets", "commits")}
    logs["rows"] = tmp_path / "rows"
    logs["state"] = tmp_path / "checkpoint" / "state" / "0" / "0"
    points = []
    for _ in range(KILLS):
        # A batch is planned (offsets), kept in mind (state), written (rows), done (commits): the next kill comes in
        # one of those moments.
        kind, more = dice.choice(list(logs)), dice.randrange(1, 4)
        enough = count(logs[kind]) + more
        with driver(broker, name, tmp_path, str(OFFSETS_A_BATCH) if has_read_limits() else "on") as process:
            eventually(
                lambda kind=kind, enough=enough, process=process: (  # type: ignore[misc]
                    send(meanwhile) and (count(logs[kind]) >= enough or process.poll() is not None)
                ),
                f"{more} more of {kind} (seed {seed})",
                LIMIT_S,
            )
            assert process.poll() is None, f"the query ended by itself (seed {seed})"
        points.append((kind, more))
    with driver(broker, name, tmp_path, "all") as process:
        assert process.wait(LIMIT_S) == 0
    found = sorted(
        (row.partition, row.offset, row.value) for row in spark.read.parquet(str(logs["rows"])).collect()
    )
    wanted = sorted((i % PARTITIONS, i // PARTITIONS, str(i)) for i in range(sent))
    assert found == wanted, f"killed at {points} (seed {seed})"


def count(folder: Path) -> int:
    return sum(1 for each in folder.iterdir() if not each.name.startswith(".")) if folder.exists() else 0
