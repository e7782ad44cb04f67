"""Owns what tests share: a broker to talk to, broker processes to kill, Kafka's jars, the order of the run.

BARNABAS_TEST_BOOTSTRAP=HOST:PORT points the tests of clients at another broker, for instance at Apache Kafka:
what passes there and here is a fact about Kafka. BARNABAS_TEST_BROKERS=3 gives them three of ours.
Without Java the tests marked `java` are left out, and the header of the run says so; with Java they run, and jars
that cannot be had are a failure.
"""

import functools
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from tools import class_archives

from barnabas.processes.zookeeper import ZooKeeperProcess, start_zookeeper
from tests import brokers as suites
from tests.brokers import Brokers
from tests.process import BrokerProcess

pytest_plugins = ("tests.shares_cores",)
pytest.register_assert_rewrite("tests.other_clients.promises", "tests.log.batches")

ROOT = Path(__file__).resolve().parent.parent
OLDEST_JAVA = 17

# An example that takes long says that the machine was busy, not that the code is slow.
hypothesis.settings.register_profile(
    "patient",
    hypothesis.settings(),
    deadline=None,
    suppress_health_check=[*hypothesis.settings().suppress_health_check, hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")


@functools.cache
def java_is_here() -> bool:
    if shutil.which("java") is None:
        return False
    answer = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False, timeout=60)
    version = re.search(r'version "(\d+)', answer.stderr)
    return version is not None and int(version[1]) >= OLDEST_JAVA


def postgres_programs() -> Path | None:
    """The folder of PostgreSQL's programs, where Debian puts them."""
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


def refuse_what_was_compiled_before() -> None:
    """Python takes what is compiled, even of a source that has changed since."""
    for code in (ROOT / "src").glob(f"barnabas__mypyc{EXTENSION_SUFFIXES[0]}"):
        for module in (ROOT / "src" / "barnabas").rglob(f"*{EXTENSION_SUFFIXES[0]}"):
            source = module.with_name(module.name.split(".")[0] + ".py")
            if source.stat().st_mtime > code.stat().st_mtime:
                raise pytest.UsageError(f"{source} has changed since it was compiled: say `make compile`.")


def pytest_configure(config: pytest.Config) -> None:
    refuse_what_was_compiled_before()
    archive = class_archives.options(class_archives.spark_archive())
    os.environ.setdefault("JDK_JAVA_OPTIONS", " ".join([*class_archives.LEAN, *archive]))
    # kafka-python loads its schemas in a way that Python 3.11 and 3.12 warn about in their own name.
    for call in ("open_text", "read_text"):
        config.addinivalue_line("filterwarnings", f"ignore:{call} is deprecated:DeprecationWarning")
    # It also leaves the socket pair that wakes its selector to the garbage collector.
    config.addinivalue_line(
        "filterwarnings", r"ignore:unclosed <socket.socket fd=\d+, family=1:ResourceWarning"
    )


def pytest_report_header() -> list[str]:
    lines = []
    if not java_is_here():
        lines.append(f"no Java {OLDEST_JAVA} or newer here: the tests marked `java` are left out")
    if postgres_programs() is None:
        lines.append("no PostgreSQL here: the tests that need it are left out")
    if given := os.environ.get("BARNABAS_TEST_BOOTSTRAP"):
        lines.append(f"the tests of clients talk to the broker at {given}")
    elif suites.COUNT > 1:
        lines.append(f"the tests of clients talk to {suites.COUNT} brokers")
    return lines


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not java_is_here():
        left_out = [item for item in items if item.get_closest_marker("java")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker("java")]
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, int]:
    """When it runs: slow ones last, of those the longest first, so that two workers end at the same time."""
    slow = item.get_closest_marker("slow")
    return slow is not None, -slow.kwargs.get("seconds", 0) if slow else 0


@pytest.fixture(scope="session")
def kafka_libs() -> Path:
    """The folder with Apache Kafka's jars."""
    from tools import kafka_jars

    return kafka_jars.jars()


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    """What tests of clients share: a broker inside this process, or a cluster."""
    # Members of the newer protocol hear what is theirs with a heartbeat: every 5 s, unless told otherwise.
    with suites.serving({"group.consumer.heartbeat.interval.ms": "200"}) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the brokers that tests of clients share, or of a given one."""
    given = os.environ.get("BARNABAS_TEST_BOOTSTRAP")
    return given or str(request.getfixturevalue("brokers").bootstrap)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark for the whole run: it takes seconds to start, and a process can have only one.

    Spark's own Kafka connector is in it beside ours, and so are Delta and Iceberg where they fit the installed PySpark.
    """
    from tools import spark_kafka_jars, table_jars

    from barnabas.spark.session import start_session
    from tests.spark.connector import table_settings

    # Workers have to find what is tested, also where another copy of it is installed.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    )
    jars = [*spark_kafka_jars.jars(), *table_jars.jars()]
    settings = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")), **table_settings()}
    session = start_session("barnabas-tests", master="local[2]", jars=jars, settings=settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """One real ZooKeeper for the whole run."""
    server = start_zookeeper(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.kill()


@pytest.fixture
def zookeeper_connect(zookeeper: ZooKeeperProcess) -> str:
    """An empty place of the test's own in the shared ZooKeeper, as `zookeeper.connect` has it."""
    return f"{zookeeper.address}/test-{uuid.uuid4().hex}"


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts real broker processes, on data of their own; what still runs at the end is killed."""
    started: list[BrokerProcess] = []

    def start(*settings: str, data: Path | None = None) -> BrokerProcess:
        broker = BrokerProcess(data or tmp_path / f"data-{len(started)}", settings)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.close()
