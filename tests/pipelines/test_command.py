"""Promises of `barnabas pipeline` and `barnabas demo`: the real command, as a process of its own."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from barnabas.errors import BarnabasError
from barnabas.pipelines.finding import find
from barnabas.pipelines.running import Run, run_on
from tests.brokers import Brokers
from tests.conftest import ROOT
from tests.pipelines.conftest import Made

COMMAND = Path(sys.executable).with_name("barnabas")


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}


def barnabas(*arguments: str, cwd: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=cwd,
        env=environment() | more,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def read_screen(screen: int, until: str | None = None) -> str:
    """What is written to a terminal, up to a word or until nobody has it open any more."""
    said = b""
    with suppress(OSError):  # that is how the end is told
        while (until is None or until.encode() not in said) and (part := os.read(screen, 1 << 16)):
            said += part
    return said.decode(errors="replace")


def test_a_new_pipeline_can_be_described_and_is_not_written_over(tmp_path: Path) -> None:
    made = barnabas("pipeline", "new", "visits.py", cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    shown = barnabas("pipeline", "describe", "visits.py", "--set", "source=clicks", cwd=tmp_path).stdout
    assert "from  records: topic clicks\n" in shown
    assert "to    out: parquet tables/visits\n" in shown
    again = barnabas("pipeline", "new", "visits.py", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (1, "barnabas: visits.py is there already.\n")


def test_the_ready_pipelines_are_listed(tmp_path: Path) -> None:
    lines = barnabas("pipeline", "list", cwd=tmp_path).stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == [
        "log-collection",
        "activity-tracking",
        "operational-metrics",
        "offline-load",
        "table-to-topic",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("activity", 2, "There is no pipeline 'activity' (is activity-tracking meant?)."),
        ("logs.py", 2, "There is no file logs.py."),
        ("log-collection --set ouput=x", 2, "has no parameter 'ouput' (is output meant?)."),
        (
            "log-collection --bootstrap 127.0.0.1:1",
            1,
            "No broker answers at 127.0.0.1:1 (connection refused).",
        ),
        ("log-collection --set source=no-such", 1, "There is no topic 'no-such' at "),
        ("offline-load --set source={topic} --master spak://x", 1, "'spak://x' is no Spark master"),
        (
            "offline-load --set source={topic} --master spark://127.0.0.1:1",
            1,
            "No Spark master answers at 127.0.0.1:1",
        ),
    ],
)
def test_what_cannot_run_is_told_in_one_sentence_within_seconds(
    arguments: str, code: int, sentence: str, broker: Brokers, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    began = time.monotonic()
    ended = barnabas(
        *("pipeline", "run", *arguments.format(topic=topic).split()),
        cwd=tmp_path,
        BARNABAS_BOOTSTRAP=broker.bootstrap,
    )
    assert (ended.returncode, ended.stdout) == (code, "")
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert time.monotonic() - began < 60


def test_a_missing_java_is_told_in_one_sentence(
    broker: Brokers, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    nothing = tmp_path / "no-java"
    nothing.mkdir()
    arguments = ("pipeline", "run", "offline-load", "--set", f"source={new_topic()}")
    ended = barnabas(*arguments, cwd=tmp_path, BARNABAS_BOOTSTRAP=broker.bootstrap, JAVA_HOME=str(nothing))
    assert ended.returncode == 1
    assert ended.stderr.startswith("barnabas: Spark needs Java 17 or newer")
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow(seconds=50)
@pytest.mark.timeout(900)
@pytest.mark.java
def test_ctrl_c_ends_a_pipeline_cleanly_and_it_goes_on_where_it_was(
    spark: Any, broker: Brokers, made: Callable[..., Made], tmp_path: Path
) -> None:
    readings = made("metrics", 500, 50.0)
    arguments = (
        "pipeline",
        "run",
        "offline-load",
        "--set",
        f"source={readings.topic}",
        "--set",
        "output=table",
    )
    given = {"BARNABAS_BOOTSTRAP": broker.bootstrap}
    # On a terminal it is told at once what is done; the file of a commit is there before Spark is through with it.
    screen, terminal = pty.openpty()
    with subprocess.Popen(
        [COMMAND, *arguments, "--master", "local[2]"],
        cwd=tmp_path,
        env=environment() | given,
        stderr=terminal,
        start_new_session=True,
    ) as running:
        os.close(terminal)
        try:
            said = read_screen(screen, until="out 500 rows, ")
            running.send_signal(signal.SIGINT)
            said += read_screen(screen)
            assert running.wait(180) == 0, said
        finally:
            running.kill()
            os.close(screen)
    (checkpoint,) = tmp_path.glob("checkpoints/offline-load-*")
    assert (checkpoint / "out" / "commits" / "0").exists()
    assert re.search(
        rf"offline-load was stopped after [\d.]+ s; it goes on from checkpoints/{checkpoint.name}\r\n$", said
    )
    assert "out 500 rows, " in said
    assert ", lag 0, " in said
    made("metrics", 250, 50.0, topic=readings.topic, first=500)
    # Go on in the session of the tests: starting another Spark takes most of such a test's time.
    how = Run(
        broker.bootstrap,
        {"source": readings.topic, "output": str(tmp_path / "table")},
        checkpoint=str(checkpoint),
        once=True,
    )
    assert run_on(spark, find("offline-load"), how).rows == {"out": 250}
    table = ds.dataset(tmp_path / "table", format="parquet", exclude_invalid_files=True).to_table()
    places = set(zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True))
    assert len(places) == table.num_rows == 750


@pytest.mark.slow(seconds=50)
@pytest.mark.timeout(900)
@pytest.mark.java
def test_a_pipeline_that_fails_says_why_in_one_sentence(
    spark: Any, broker: Brokers, made: Callable[..., Made], tmp_path: Path
) -> None:
    readings = made("metrics", 10, 50.0)
    (tmp_path / "broken.py").write_text(
        "from barnabas.pipelines import console, pipeline, topic\n"
        '@pipeline(source=topic("{source}"), sink=console())\n'
        "def broken(records, source: str = 'x'):\n"
        "    def fail(batches):\n"
        "        raise ValueError('no such luck')\n"
        "        yield\n"
        "    return records.mapInArrow(fail, 'a INT')\n"
    )
    how = Run(
        broker.bootstrap, {"source": readings.topic}, checkpoint=str(tmp_path / "checkpoint"), once=True
    )
    with pytest.raises(BarnabasError) as raised:
        run_on(spark, find(str(tmp_path / "broken.py")), how)
    assert str(raised.value) == "Pipeline broken failed: ValueError: no such luck."


@pytest.mark.slow(seconds=50)
@pytest.mark.timeout(900)
@pytest.mark.java
def test_the_demo_shows_what_it_finds_and_ends_by_itself(tmp_path: Path) -> None:
    ended = barnabas("demo", "--seconds", "12", cwd=tmp_path, TMPDIR=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert " top pages of five minutes: / " in ended.stdout
    sums = re.search(
        r"14,400 events became ([\d,]+) sessions and the top pages of (\d+) windows", ended.stdout
    )
    assert sums is not None, ended.stdout
    told = [
        int(number.replace(",", "")) for number in re.findall(r"  ([\d,]+) sessions are over", ended.stdout)
    ]
    assert sum(told) == int(sums[1].replace(",", "")) > 100
    assert list(tmp_path.glob("barnabas-demo-*")) == [], "nothing is left behind"


def test_declarative_pipelines_without_spark_connect_say_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['grpc'] = None\n"
        "from barnabas.pipelines.declarative import declare\n"
        "from barnabas.pipelines.finding import find\n"
        "declare(find('log-collection'))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert "pip install 'pyspark[pipelines]'" in ended.stderr.splitlines()[-1], json.dumps(ended.stderr)
