"""Every example of docs/STREAMS.md runs, in the order of the page, and prints the text that stands below it."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from tests.brokers import Brokers, serving

PAGE = Path(__file__).resolve().parents[2] / "docs" / "STREAMS.md"
_EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


@pytest.mark.java
def test_the_examples_print_what_the_page_says(spark: Any, tmp_path: Path) -> None:
    examples = _EXAMPLE.findall(PAGE.read_text())
    assert len(examples) >= 3
    with serving() as broker:
        with Admin(broker.bootstrap) as admin:
            for topic in ("orders", "big-orders"):
                admin.create_topic(topic, partitions=1)
        names: dict[str, Any] = {}
        for code, expected in examples:
            printed = io.StringIO()
            # The session of the tests is the one that start_session finds.
            with contextlib.redirect_stdout(printed):
                exec(_settled(code, broker, tmp_path), names)
            assert printed.getvalue() == expected


def _settled(code: str, broker: Brokers, folder: Path) -> str:
    """The example with our broker, and its folders in ours: Spark's process has a working directory of its own."""
    for name in ("state", "small-orders"):
        code = code.replace(f'"{name}"', f'"{folder}/{name}"')
    return code.replace("localhost:9092", broker.bootstrap)
