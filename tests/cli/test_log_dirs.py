"""Promises of `barnabas log dirs` and `barnabas log move`, held against a broker with two data directories."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Admin, Producer
from barnabas.testing import Broker
from tests.cli.conftest import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("directories")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    with Broker({"log.dirs": f"{folder}/a,{folder}/b"}) as running:
        yield running


@pytest.fixture
def environment(broker: Broker) -> dict[str, str]:
    return os.environ | {"BARNABAS_BOOTSTRAP": broker.bootstrap}


@pytest.fixture
def homes(broker: Broker, folder: Path, topic: str) -> tuple[Path, Path]:
    """Of a topic with records: the directory that it is in, and the other."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, bytes(1000)).result(60)
    a, b = folder / "a", folder / "b"
    return (a, b) if (a / f"{topic}-0").exists() else (b, a)


def test_a_replica_moves_and_is_shown_where_it_is(
    barnabas: Run, topic: str, homes: tuple[Path, Path]
) -> None:
    home, other = homes
    before = barnabas("log", "dirs", "--topic", topic)
    lines = before.out.splitlines()
    assert f"\t{topic}-0\t" in lines[[line.split("\t")[1] for line in lines].index(f"Directory: {home}") + 1]
    moved = barnabas("log", "move", f"{topic}:0", "--to", other)
    assert moved == (0, f"Moved 1 replica of broker 1 to {other}.\n", "")
    assert (other / f"{topic}-0").is_dir()
    assert not (home / f"{topic}-0").exists()
    again = barnabas("log", "move", f"{topic}:0", "--broker", "1", "--to", other)
    assert again.code == 0


def test_a_move_is_shown_on_its_way_and_cancelled(
    barnabas: Run, topic: str, homes: tuple[Path, Path]
) -> None:
    home, other = homes
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    # As after many bytes: a slow disk would do the same.
    barnabas("config", "set", "--broker", "1", f"{rate}=1")
    try:
        large = barnabas("produce", topic, stdin=("x" * 999 + "\n") * 20)
        assert large.code == 0, large.err
        begun = barnabas("log", "move", f"{topic}:0", "--to", other, "--no-wait")
        assert begun == (0, f"1 replica on the way to {other}.\n", "")
        assert f"\t{topic}-0\tis on its way here: " in barnabas("log", "dirs").out
        cancelled = barnabas("log", "move", f"{topic}:0", "--cancel")
        assert cancelled == (0, "1 replica of broker 1: no move any more.\n", "")
        assert "is on its way" not in barnabas("log", "dirs").out
        assert (home / f"{topic}-0").is_dir()
    finally:
        assert barnabas("config", "set", "--broker", "1", "--delete", rate).code == 0


def test_what_makes_no_sense_is_one_sentence(barnabas: Run, topic: str, homes: tuple[Path, Path]) -> None:
    _, other = homes
    nowhere = barnabas("log", "move", f"{topic}:0", "--to", "/nowhere")
    assert (nowhere.code, nowhere.out) == (1, "")
    assert "Broker 1 has no data directory /nowhere: it has " in nowhere.err
    unknown = barnabas("log", "move", f"{topic}:7", "--to", other)
    assert (unknown.code, unknown.out, unknown.err.count("\n")) == (1, "", 1)
    for arguments in ([f"{topic}:0"], [topic, "--to", other], [f"{topic}:0", "--to", other, "--cancel"]):
        wrong = barnabas("log", "move", *arguments)
        assert (wrong.code, wrong.out) == (2, "")


@pytest.mark.parametrize("command", [("dirs",), ("move", "t:0", "--to", "/nowhere")])
def test_a_broker_that_there_is_not_is_refused_without_waiting_for_it(
    barnabas: Run, command: tuple[str, ...]
) -> None:
    ended = barnabas("log", *command, "--broker", "9")
    assert ended == (1, "", "barnabas: There is no broker 9 in the cluster.\n")
