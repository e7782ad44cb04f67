"""Promises of the Makefile to those who have not set anything up yet."""

import subprocess
from pathlib import Path

import pytest


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
        cwd=Path(__file__).parent.parent,
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
