"""Promises of the Makefile: to those who have not set anything up yet, and about what CI runs a second time."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("/nonexistent/python", "/nonexistent/python cannot be run as one"),
        ("false", "false cannot be run as one"),
        ("", "none was found"),
    ],
)
def test_a_python_that_cannot_be_run_is_told_of(tmp_path: Path, python: str, why: str) -> None:
    done = subprocess.run(
        ["make", "run", f"PYTHON={python}", f"VENV={tmp_path}/venv"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    sentence = (
        f"Barnabas needs Python 3.11 or newer, and {why}: install it, or say make PYTHON=/path/to/python."
    )
    assert sentence in done.stderr.splitlines()
    assert not list(tmp_path.iterdir())


SUITE = """
import pathlib
import pytest

BEFORE = pathlib.Path(__file__).with_name("before")

def fails_at_first(name):
    with (BEFORE / name).open("a") as count:
        count.write("x")
    assert (BEFORE / name).stat().st_size > 1

@pytest.mark.shares_cores("two processes and a clock")
def test_marked():
    fails_at_first("marked")

@pytest.mark.shares_cores("two processes and a clock")
def test_hopeless():
    assert {hopeless} is False

def test_plain():
    {plain}
"""


def run_as_ci_does(folder: Path, suite: str) -> "subprocess.CompletedProcess[str]":
    """`make test-ci` with tests of its own, in a folder of its own."""
    (folder / "before").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q --strict-markers\n")
    (folder / "test_suite.py").write_text(suite)
    return subprocess.run(
        # What is installed stays as it is, however old: -o.
        [
            "make",
            "-o",
            ".venv/.all",
            "test-ci",
            f"ARGS=-p tests.shares_cores -n 0 --rootdir={folder} {folder}",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_is_marked_as_sharing_cores_may_fail_once(tmp_path: Path) -> None:
    done = run_as_ci_does(tmp_path, SUITE.format(hopeless=False, plain="pass"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 failed, 2 passed" in done.stdout
    assert (tmp_path / "before" / "marked").read_text() == "xx"


def test_what_fails_twice_has_failed(tmp_path: Path) -> None:
    done = run_as_ci_does(tmp_path, SUITE.format(hopeless=True, plain="pass"))
    assert done.returncode != 0
    assert (tmp_path / "before" / "marked").read_text() == "xx"


def test_any_other_test_has_to_pass_the_first_time(tmp_path: Path) -> None:
    done = run_as_ci_does(tmp_path, SUITE.format(hopeless=False, plain='fails_at_first("plain")'))
    assert done.returncode != 0
    assert "have to pass the first time" in done.stderr
    assert "test_suite.py::test_plain" in done.stderr
    assert "test_suite.py::test_marked" not in done.stderr
    assert (tmp_path / "before" / "plain").read_text() == "x"
    assert (tmp_path / "before" / "marked").read_text() == "x"  # nothing is run for a run that has failed


def test_a_run_that_did_not_come_to_its_end_is_not_mended_by_another(tmp_path: Path) -> None:
    done = run_as_ci_does(tmp_path, SUITE.format(hopeless=False, plain='pytest.exit("stopped", 3)'))
    assert done.returncode != 0
    assert "once more" not in done.stdout


def test_a_mark_without_a_reason_is_refused(tmp_path: Path) -> None:
    marks = ["", "()", '(" ")', "(3)", '(reason="")', '("a reason")', '(reason="a reason")']
    tests = (
        f"@pytest.mark.shares_cores{mark}\ndef test_{number}():\n    pass\n"
        for number, mark in enumerate(marks)
    )
    done = run_as_ci_does(tmp_path, "import pytest\n" + "".join(tests))
    assert done.returncode != 0
    assert "2 passed, 5 errors" in done.stdout
    assert "shares_cores wants a reason" in done.stdout
