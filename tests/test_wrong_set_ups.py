"""Wrong set-ups of a cluster, made with real parts: each says the sentence that docs/CLUSTER.md has for it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from barnabas import Admin
from barnabas.processes import zookeeper as processes
from barnabas.processes.zookeeper import start_ensemble
from barnabas.testing import Broker
from tests.deadline import eventually
from tests.process import free_port

PAGE = Path(__file__).resolve().parent.parent / "docs" / "CLUSTER.md"
COMMAND = Path(sys.executable).with_name("barnabas")
COMMAND_S = 120
IDS = ("4L6g3nShT-eMCtK--X86sw", "uZ0wC3bLQ3yYVt9rT1mXkA")
"""The cluster ids of the page, in the order of a sentence."""

pytestmark = [pytest.mark.java, pytest.mark.slow(seconds=40)]


class Place(NamedTuple):
    """Where a set-up is made: a chroot of its own, a folder, and what ends with the test."""

    connect: str
    folder: Path
    running: ExitStack

    def settings(self, number: int, **more: str) -> dict[str, str]:
        return {
            "broker.id": str(number),
            "zookeeper.connect": self.connect,
            "zookeeper.chroot.create": "true",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self.folder / f"data-{number}"),
            "offsets.topic.num.partitions": "1",
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def start(self, number: int, **more: str) -> Broker:
        """A broker in this process that is set up well."""
        given = self.settings(number, **more)
        return self.running.enter_context(Broker(given, data=given.pop("log.dirs")))

    def broker(self, number: int, **more: str) -> list[str]:
        """The command of a broker that is a process of its own."""
        file = self.folder / "server.properties"
        given = self.settings(number, **more)
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        return ["broker", "--config", str(file)]

    def plan(self, *replicas: int) -> str:
        file = self.folder / "plan.json"
        rows = [{"topic": "orders", "partition": 0, "replicas": replicas}]
        file.write_text(json.dumps({"version": 1, "partitions": rows}))
        return str(file)


@pytest.fixture
def place(zookeeper_connect: str, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as running:
        yield Place(zookeeper_connect, tmp_path, running)


def said(*arguments: str, **environment: str) -> str:
    """The sentence that a command ends with."""
    ended = subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=COMMAND_S,
        check=False,
    )
    assert ended.returncode == 1, ended
    (sentence,) = re.findall(r"^barnabas: (.*)$", ended.stderr, re.MULTILINE)
    return str(sentence)


def no_zookeeper(place: Place) -> str:
    nowhere = place._replace(connect=f"127.0.0.1:{free_port()}/barnabas")
    sentence = said(*nowhere.broker(1, zookeeper_connection_timeout_ms="1500"))
    return sentence.replace(nowhere.connect, "one:2181/barnabas").replace("within 1.5 s", "within 18 s")


def a_zookeeper_without_its_majority(place: Place) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_JAVA_OPTIONS", (*processes._JAVA_OPTIONS, "-Dreadonlymode.enabled=true"))
        servers = start_ensemble(place.folder / "ensemble")
    for server in servers:
        place.running.callback(server.kill)
    for server in servers[1:]:
        server.kill()
    eventually(lambda: servers[0].mode() == "read-only", "the last server to be read-only")
    alone = place._replace(connect=f"{servers[0].address}/barnabas")
    sentence = said(*alone.broker(1, zookeeper_connection_timeout_ms="1500"))
    return sentence.replace(alone.connect, "one:2181/barnabas")


def no_chroot(place: Place) -> str:
    sentence = said(*place.broker(1, zookeeper_chroot_create="false"))
    return sentence.replace(place.connect, "one:2181/barnabas")


def an_id_that_is_taken(place: Place) -> str:
    holder = place.start(1)
    another = {"log_dirs": str(place.folder / "another"), "zookeeper_session_timeout_ms": "2000"}
    return said(*place.broker(1, **another)).replace(holder.bootstrap, "one:9092")


def data_of_another_cluster(place: Place) -> str:
    place.start(1).stop()
    elsewhere = place._replace(connect=f"{place.connect}/elsewhere")
    elsewhere.start(2)
    return said(*elsewhere.broker(1)).replace(elsewhere.connect, "one:2181/barnabas")


def an_address_that_others_cannot_reach(place: Place) -> str:
    place.start(1)
    address = f"127.0.0.1:{free_port()}"
    log = place.folder / "broker.log"
    command = place.broker(2, advertised_listeners=f"PLAINTEXT://{address}")
    with log.open("w") as errors, subprocess.Popen([COMMAND, *command], stderr=errors) as process:
        try:
            found = eventually(
                lambda: re.findall(r"Broker 2 waits .*\?$", log.read_text(), re.MULTILINE), "it"
            )
        finally:
            process.kill()
    return str(found[0]).replace(address, "two:9092")


def three_brokers(place: Place) -> str:
    addresses = [place.start(number).bootstrap for number in (1, 2, 3)]
    eventually(lambda: all(known_at(address) == 3 for address in addresses), "all to know of all")
    return ",".join(addresses)


def known_at(address: str) -> int:
    with Admin(address) as admin:
        return len(admin.describe_cluster().brokers)


def more_replicas_than_brokers(place: Place) -> str:
    create = ("topic", "create", "orders", "--replication-factor", "4")
    return said(*create, "--bootstrap", three_brokers(place))


def a_plan_with_an_unknown_broker(place: Place) -> str:
    return said("reassign", "run", place.plan(9), "--bootstrap", three_brokers(place))


def a_plan_with_a_broker_twice(place: Place) -> str:
    return said("reassign", "run", place.plan(1, 1))


def no_java(place: Place) -> str:
    folder = str(place.folder)
    return said("zookeeper", "--data", folder, "--port", str(free_port()), PATH=folder, JAVA_HOME="")


SetUp: TypeAlias = Callable[[Place], str]
SET_UPS: list[SetUp] = [
    no_zookeeper,
    a_zookeeper_without_its_majority,
    no_chroot,
    an_id_that_is_taken,
    data_of_another_cluster,
    an_address_that_others_cannot_reach,
    more_replicas_than_brokers,
    a_plan_with_an_unknown_broker,
    a_plan_with_a_broker_twice,
    no_java,
]


def on_the_page() -> list[str]:
    section = PAGE.read_text().partition("## What wrong set-ups say\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE)


@pytest.mark.parametrize("set_up", SET_UPS, ids=lambda set_up: set_up.__name__)
def test_a_wrong_set_up_says_the_sentence_of_the_page(place: Place, set_up: SetUp) -> None:
    sentence = set_up(place)
    for found, example in zip(re.findall(r"cluster ([\w-]{22})(?![\w-])", sentence), IDS, strict=False):
        sentence = sentence.replace(found, example)
    assert sentence in on_the_page()


def test_each_sentence_of_the_page_is_compared() -> None:
    assert len(set(on_the_page())) == len(SET_UPS)
