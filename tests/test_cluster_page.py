"""docs/CLUSTER.md, run as it stands: the commands of its `sh` blocks, in their order, with ports of this machine."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import free_port

PAGE = Path(__file__).resolve().parent.parent / "docs" / "CLUSTER.md"
PAGE_S = 280

pytestmark = [pytest.mark.java, pytest.mark.slow(seconds=60)]


def script(page: str) -> str:
    """The blocks as one script, for machines `one` to `four` that are all this one."""
    text = "\n".join(re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    zookeeper = free_port()
    text = text.replace("--port 2181 --host one", f"--port {zookeeper} --host 127.0.0.1")
    text = text.replace("one:2181", f"127.0.0.1:{zookeeper}")
    for machine in ("one", "two", "three", "four"):
        text = text.replace(f"{machine}:9092", f"127.0.0.1:{free_port()}")
    return "set -eux\ntrap 'kill -9 $(jobs -p) 2>/dev/null' EXIT\n" + text


@pytest.mark.timeout(PAGE_S + 10)
def test_the_page_runs(tmp_path: Path) -> None:
    commands = script(PAGE.read_text())
    assert "9092" not in commands
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-c", commands],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            said, _ = shell.communicate(timeout=PAGE_S)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            raise
    logs = "".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted(tmp_path.glob("*.log")))
    assert shell.returncode == 0, said + logs
    assert "All is well." in said
    assert "The plan is carried out." in said
