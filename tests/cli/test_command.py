"""Promises of the command as a whole: help, exit codes, and a quick start."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Run
from tests.process import free_port

COMMANDS = (
    (),
    ("up",),
    ("broker",),
    ("topic",),
    ("topic", "create"),
    ("topic", "list"),
    ("topic", "describe"),
    ("topic", "alter"),
    ("topic", "delete"),
    ("produce",),
    ("consume",),
    ("log", "dump"),
    ("config", "describe"),
    ("config", "set"),
    ("zookeeper",),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(barnabas: Run, command: tuple[str, ...]) -> None:
    ended = barnabas(*command, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert "Usage: barnabas" in ended.out


def test_wrong_usage_ends_with_2(barnabas: Run) -> None:
    for arguments in (
        ("nonsense",),
        ("topic", "create"),
        ("up", "--nonsense"),
        ("broker",),
        ("consume", "t", "--max", "x"),
        ("consume", "t", "--from-beginning", "--offset", "1"),
        ("consume", "t", "--format", "xml"),
        ("consume", "t", "--offset", ""),
        ("consume", "t", "--offset", "9" * 20),
        ("consume", "t", "--from-time", "9" * 20),
        ("consume", "t", "--from-time", "9" * 5000),
        ("consume", "t", "--from-time", "999999999999999d"),
        ("consume", "t", "--from-time", "1969-12-31T23:59:59.999Z"),
        ("up", "--set", "x"),
        ("up", "--listen", "127.0.0.1:x", "--data", "a, b"),
        ("up", "--set", "x", "--log-format", "json"),
        ("topic", "create", "t", "--config", "x"),
        ("topic", "create", "t", "--partitions", "99999999999"),
        ("topic", "create", "t", "--replication-factor", "70000"),
        ("topic", "alter", "t", "--partitions", "99999999999"),
        ("topic", "alter", "t"),
        ("config", "set", "--topic", "t", "x"),
        ("config", "describe"),
        ("produce", "t", "-H", "x"),
        ("produce", "t", "--keep-partitions"),
        ("produce", "t", "--keep-partitions", "--format", "json", "-p", "0"),
        ("produce", "t", "-K", "\\"),
        ("produce", "t", "-K", "\\ud800"),
        ("produce", "t", "--acks", "2"),
        ("produce", "t", "-z", "rar"),
        ("group", "reset", "g", "--topic", "t"),
        ("group", "reset", "g", "--topic", "t:x", "--to", "latest"),
    ):
        ended = barnabas(*arguments)
        assert (ended.code, ended.out) == (2, ""), arguments
        assert "Traceback" not in ended.err


def test_the_version_is_told(barnabas: Run) -> None:
    ended = barnabas("--version")
    assert ended.code == 0
    assert ended.out.startswith("barnabas 0.")


def test_python_m_is_the_command(barnabas: Run, environment: dict[str, str]) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "barnabas", "--help"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout == barnabas("--help").out


def test_no_broker_is_one_sentence(barnabas: Run) -> None:
    address = f"127.0.0.1:{free_port()}"
    for command in (
        ("topic", "list"),
        ("produce", "t"),
        ("consume", "t"),
        ("config", "describe", "--topic", "t"),
    ):
        ended = barnabas(*command, "--bootstrap", address)
        assert ended == (1, "", f"barnabas: No broker answers at {address} (connection refused).\n")


def test_a_broker_starts_without_typer_and_the_client(tmp_path: Path) -> None:
    script = (
        "import sys; sys.argv = ['barnabas', 'up', '--listen', '127.0.0.1:0', '--data', sys.argv[1]]\n"
        "from barnabas.cli import main, up\n"
        "up.up = lambda **options: print(options, sorted(sys.modules))\n"
        "main.run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=120, check=True
    )
    assert f"{{'listen': '127.0.0.1:0', 'data': '{tmp_path}'}}" in done.stdout
    for dear in ("typer", "click", "rich", "barnabas.client", "importlib.metadata"):
        assert f"'{dear}'" not in done.stdout, f"{dear} is imported before a broker starts"


@pytest.mark.parametrize(
    "option", [("--set", "num.partitions=none"), ("--listen", "nowhere:http"), ("--data", "/proc/none")]
)
def test_a_broker_that_cannot_start_says_why(barnabas: Run, tmp_path: Path, option: tuple[str, str]) -> None:
    ended = barnabas("up", "--data", tmp_path, *option)
    assert (ended.code, ended.out) == (1, "")
    assert "barnabas: " in ended.err
    assert "Traceback" not in ended.err
    assert "Errno" not in ended.err


def test_a_folder_that_cannot_hold_data_is_one_sentence(barnabas: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = barnabas("up", "--listen", "127.0.0.1:0", "--data", tmp_path / "file" / "data")
    where = tmp_path / "file" / "data"
    assert ended.err.splitlines()[-1] == (
        f"barnabas: No data directory works any more; the last was {where}: not a directory."
    )


def test_the_short_cut_and_typer_agree(tmp_path: Path) -> None:
    from barnabas.cli.main import _start_arguments

    assert _start_arguments(["up", "--data=x", "--set", "a=1", "--set=b=2", "--log-format", "json"]) == (
        "up",
        {"data": "x", "settings": ["a=1", "b=2"], "log_format": "json"},
    )
    assert _start_arguments(["broker", "--config", "f", "--metrics", "h:1"]) == (
        "broker",
        {"config": "f", "metrics": "h:1"},
    )
    for left_to_typer in (
        ["up", "--help"],
        ["up", "--data"],
        ["up", "--data", "--set"],
        ["up", "extra"],
        ["up", "--log-format", "xml"],
        ["broker"],
        ["topic", "list"],
        [],
    ):
        assert _start_arguments(left_to_typer) is None
    ended = subprocess.run(
        [COMMAND, "up", "--log-format", "xml"], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 2


def test_a_closed_stdout_gets_no_traceback(environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"{COMMAND}" topic list >&-'],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr


def test_a_closed_stdin_or_stdout_is_one_sentence(
    environment: dict[str, str], barnabas: Run, topic: str
) -> None:
    barnabas("topic", "create", topic)
    nowhere = "There is nowhere to print to: stdout is closed."
    for command, sentence in (
        (f"produce {topic} <&-", "There is nothing to send: stdin is closed."),
        (f"consume {topic} >&-", nowhere),
        (f"consume {topic} --group {topic} >&-", nowhere),
        ("generate activity --count 1 --stdout >&-", nowhere),
    ):
        done = subprocess.run(
            ["sh", "-c", f'"{COMMAND}" {command}'],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (1, f"barnabas: {sentence}\n")
