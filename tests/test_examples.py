"""Promises of the pages in docs/: every Python example runs, and prints the text that stands below it.

An example runs in a Python of its own against a broker of its page, in the order of the page: what one has sent, a
later one may read.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.testing import Broker

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "docs" / "CLIENT.md"]
ADDRESS = "localhost:9092"


class Example(NamedTuple):
    page: Path
    line: int
    code: str
    output: str | None


def examples(page: Path) -> Iterator[Example]:
    text = page.read_text()
    for found in re.finditer(
        r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", text, re.MULTILINE | re.DOTALL
    ):
        yield Example(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[Path, Broker]]:
    """A broker for each page."""
    started = {page: Broker().start() for page in PAGES}
    yield started
    for broker in started.values():
        broker.stop()


@pytest.mark.parametrize(
    "example",
    [each for page in PAGES for each in examples(page)],
    ids=lambda each: f"{each.page.name}:{each.line}",
)
def test_an_example_runs_and_prints_what_the_page_says(example: Example, brokers: dict[Path, Broker]) -> None:
    code = example.code.replace(ADDRESS, brokers[example.page].bootstrap)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=os.environ | {"COLUMNS": "100"},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == (example.output or "")


def test_there_are_examples() -> None:
    for page in PAGES:
        found = list(examples(page))
        assert len(found) == page.read_text().count("```python\n") > 0
        assert any(each.output for each in found)
