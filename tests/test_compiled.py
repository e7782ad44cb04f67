"""What `setup.py` compiles: it is compiled here, it says the same as its source, and the source works by itself."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from barnabas import Producer

ROOT = Path(__file__).resolve().parent.parent
COMPILED = [
    path.replace("/", ".").removesuffix(".py")
    for path in re.findall(r'"src/(.*)"', (ROOT / "setup.py").read_text())
]
COMPILER_IS_HERE = shutil.which("cc") is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


@pytest.mark.skipif(not COMPILER_IS_HERE, reason="no C compiler, or no headers of Python")
@pytest.mark.parametrize("name", COMPILED)
def test_where_there_is_a_compiler_it_was_used(name: str) -> None:
    assert str(importlib.import_module(name).__file__).endswith(".so"), "say `make compile`"


def test_help_knows_what_the_source_says() -> None:
    assert "future says where it is stored" in str(Producer.send.__doc__)


def test_a_producer_may_be_subclassed_and_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Producer):
        def send(self, topic: str, *rest: object, **named: object) -> str:  # type: ignore[override]
            return topic

    mine = Mine.__new__(Mine)
    assert mine.send("orders") == "orders"
    monkeypatch.setattr(mine, "send", lambda topic: f"patched {topic}")
    assert mine.send("orders") == "patched orders"


@pytest.mark.slow(40)
def test_the_sources_work_by_themselves(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    suites = (
        "client/producer/test_accumulator.py",
        "client/producer/test_producer_usage.py",
        "wire/test_records.py",
    )
    plain = f"""
import sys, pytest
failed = pytest.main(["-p", "no:cacheprovider", *{[str(ROOT / "tests" / each) for each in suites]}])
assert all(sys.modules[name].__file__.endswith(".py") for name in {COMPILED})
sys.exit(failed)
"""
    done = subprocess.run(
        [sys.executable, "-c", plain],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "src")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
