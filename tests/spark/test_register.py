"""`register` in a session of one's own: our source's workers have our packages, or one sentence says they have not."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas import Producer
from tests.brokers import Brokers
from tests.conftest import ROOT

pytestmark = [pytest.mark.java, pytest.mark.slow(seconds=40)]


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """A Python without our packages, first on the PATH."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    base = getattr(sys, "_base_executable", sys.executable)
    python.write_text(f'#!/bin/sh\nexec {base} -S "$@"\n')
    python.chmod(0o755)
    return python


def run(
    broker: Brokers, topic: str, folder: Path, python: Path, **more: str
) -> "subprocess.CompletedProcess[str]":
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
    command = [
        sys.executable,
        "-m",
        "tests.spark.plain_session",
        broker.bootstrap,
        topic,
        str(folder / "checkpoint"),
    ]
    return subprocess.run(
        command, cwd=ROOT, env=environment | more, capture_output=True, text=True, timeout=240, check=False
    )


def test_a_script_of_an_environment_that_is_not_active_reads_and_streams(
    broker: Brokers, producer: Producer, topic: Callable[..., str], tmp_path: Path, other_python: Path
) -> None:
    name = topic()
    for i in range(30):
        producer.send(name, b"%d" % i)
    producer.flush()
    ended = run(broker, name, tmp_path, other_python)
    assert ended.stdout.split() == ["batch", "30", "stream", "30"], ended.stderr[-2000:]


def test_a_chosen_python_without_our_packages_is_one_sentence(
    broker: Brokers, topic: Callable[..., str], tmp_path: Path, other_python: Path
) -> None:
    ended = run(broker, topic(), tmp_path, other_python, PYSPARK_PYTHON=str(other_python))
    last = ended.stderr.strip().splitlines()[-1]
    assert f"Spark's workers run {other_python}, which has no " in last, ended.stderr[-2000:]
    assert "set PYSPARK_PYTHON to a Python that has barnabas[spark], such as " in last
