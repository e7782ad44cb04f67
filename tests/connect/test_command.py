"""`barnabas connect` as a person meets it: a process, its words, its exit code, its end by a signal."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from barnabas.connect.connector import sinks, sources
from tests.deadline import eventually

COMMAND = [sys.executable, "-c", "from barnabas.cli.main import run; run()"]
_WITHIN_S = 200.0


def _connect(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "connect", *map(str, arguments)]
    environ = {**os.environ, **environment}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_WITHIN_S, env=environ
    )


def _declared(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    file = tmp_path / "lines.toml"
    file.write_text(
        f"""
        checkpoint = "{tmp_path}/state"
        [source.lines]
        connector = "jsonlines"
        path = "{tmp_path}/in"
        schema = "id long, text string"
        max_files = 1
        [sink.table]
        connector = "jdbc"
        url = "jdbc:sqlite:{tmp_path}/out.db"
        table = "lines"
        [flow.main]
        source = "lines"
        sinks = ["table"]
        every = "1 second"
        """
    )
    return file


def _add(tmp_path: Path, name: str, ids: range) -> None:
    beside = tmp_path / name
    beside.write_text("".join(json.dumps({"id": number, "text": "x"}) + "\n" for number in ids))
    beside.rename(tmp_path / "in" / name)


def _ids(tmp_path: Path) -> list[int]:
    if not (tmp_path / "out.db").exists():
        return []
    with closing(sqlite3.connect(tmp_path / "out.db", timeout=30)) as database:
        try:
            return [number for (number,) in database.execute("SELECT id FROM lines ORDER BY id")]
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            return []


def test_list_and_describe_tell_of_every_connector() -> None:
    listed = _connect("list")
    assert listed.returncode == 0
    for name in {*sources(), *sinks()}:
        assert f"  {name} " in listed.stdout
    described = _connect("describe", "jdbc")
    assert "increasing" in described.stdout
    assert _connect("describe", "jdbk").stderr == "barnabas: There is no connector jdbk; did you mean jdbc?\n"


def test_new_begins_a_file_and_never_writes_over_one(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    assert _connect("new", file, "--from", "csv", "--to", "parquet").returncode == 0
    assert 'connector = "csv"' in file.read_text()
    again = _connect("new", file)
    assert (again.returncode, again.stderr) == (1, f"barnabas: {file} is there already.\n")
    wrong = _connect("new", tmp_path / "other.toml", "--from", "cvs")
    assert "there is no source cvs; did you mean csv?" in wrong.stderr
    assert not (tmp_path / "other.toml").exists()


def test_what_is_not_there_is_told_without_starting_spark(tmp_path: Path) -> None:
    file = tmp_path / "far.toml"
    file.write_text(
        """
        [source.shop]
        connector = "jdbc"
        url = "jdbc:postgresql://127.0.0.1:9/shop"
        table = "orders"
        increasing = "id"
        [sink.out]
        connector = "http"
        url = "http://127.0.0.1:9/"
        """
    )
    for command in ("check", "run"):
        told = _connect(command, file)
        assert told.returncode == 1
        assert "source shop: No database answers at 127.0.0.1:9 (Connection refused)." in told.stderr
        assert "sink out: No server answers at 127.0.0.1:9 (Connection refused)." in told.stderr
        assert told.stderr.count("\n") == 1


def test_a_missing_java_is_one_sentence(tmp_path: Path) -> None:
    told = _connect("run", _declared(tmp_path), JAVA_HOME=str(tmp_path))
    assert told.returncode == 1
    assert told.stderr.startswith("barnabas: Spark needs Java 17 or newer, and JAVA_HOME=")
    assert told.stderr.count("\n") == 1


@pytest.mark.java
@pytest.mark.slow(seconds=60)
@pytest.mark.timeout(900)
def test_a_flow_is_stopped_killed_and_goes_on_where_it_was(tmp_path: Path) -> None:
    file = _declared(tmp_path)
    command = [*COMMAND, "connect", "run", str(file), "--master", "local[2]"]
    _add(tmp_path, "0.json", range(10))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        eventually(lambda: len(_ids(tmp_path)) == 10, "the first rows", _WITHIN_S)
        running.send_signal(signal.SIGINT)
        assert running.wait(_WITHIN_S) == 0
        assert running.stderr is not None
        assert "main 10 rows in 1 batches" in running.stderr.read()

    for number in range(1, 9):
        _add(tmp_path, f"{number}.json", range(number * 10, number * 10 + 10))
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        eventually(lambda: len(_ids(tmp_path)) > 10, "rows after the start", _WITHIN_S)
        running.kill()
    done = _connect("run", file, "--once", "--master", "local[2]")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert _ids(tmp_path) == list(range(90))
