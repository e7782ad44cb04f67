"""A Spark that cannot start says why, at once, in one sentence."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import BarnabasError
from barnabas.spark import session
from barnabas.spark.installed import has_read_limits
from barnabas.spark.masters import check_master
from barnabas.spark.session import start_session
from barnabas.spark.worker_forkserver import private_folder


def test_a_missing_java_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    session._check_java.cache_clear()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        BarnabasError, match=r"Spark needs Java 17 or newer, and JAVA_HOME=.* has no bin/java"
    ):
        start_session("test", master="local[1]")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BarnabasError, match="no `java` on the PATH"):
        start_session("test", master="local[1]")


def test_an_old_java_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    session._check_java.cache_clear()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BarnabasError, match=r"17 or newer, and .*java is version 11"):
        start_session("test", master="local[1]")


@pytest.mark.parametrize("master", ["loca[2]", "local[two]", "spark:/host:7077", "spark://host", " "])
def test_a_wrong_master_is_told_what_masters_there_are(master: str) -> None:
    with pytest.raises(BarnabasError, match=r"is no Spark master: use local\[2\]"):
        start_session("test", master=master)


def test_a_master_that_is_down_is_told_within_seconds() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, never listening: nobody else can take the port
        began = time.monotonic()
        with pytest.raises(BarnabasError, match=r"No Spark master answers at 127\.0\.0\.1"):
            start_session("test", master=f"spark://127.0.0.1:{taken.getsockname()[1]}")
        assert time.monotonic() - began < 40  # Spark itself would try for more than a minute


@pytest.fixture
def yarn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Says in a yarn-site.xml where ResourceManagers are, as `yarn.resourcemanager.NAME`."""

    def site(**properties: str) -> None:
        named = {
            f"yarn.resourcemanager.{name.replace('_', '.')}": value for name, value in properties.items()
        }
        lines = [
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in named.items()
        ]
        (tmp_path / "yarn-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")

    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    return site


def test_yarn_without_its_settings_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(BarnabasError, match=r"set HADOOP_CONF_DIR to the folder of yarn-site\.xml"):
        start_session("test", master="yarn")


def test_a_resource_manager_that_is_down_is_told_within_seconds(yarn: Callable[..., None]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        yarn(address=address)
        began = time.monotonic()
        with pytest.raises(BarnabasError, match=f"No ResourceManager of YARN answers at {address}"):
            start_session("test", master="yarn")
        assert time.monotonic() - began < 40  # Spark itself would try for a quarter of an hour


def test_one_resource_manager_that_answers_is_enough(yarn: Callable[..., None]) -> None:
    with socket.socket() as down, socket.socket() as up:
        down.bind(("127.0.0.1", 0))
        up.bind(("127.0.0.1", 0))
        up.listen()
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (down, up)]
        yarn(address=addresses[0])
        check_master("yarn", {"spark.hadoop.yarn.resourcemanager.address": addresses[1]})
        yarn(**{"ha_rm-ids": "a, b", "address_a": addresses[0], "address_b": addresses[1]})
        check_master("yarn", {})


@pytest.mark.parametrize("scheme", ["", "https://", "http://"])
def test_an_api_server_that_is_down_is_told_within_seconds(scheme: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(BarnabasError, match=f"No API server of Kubernetes answers at {address}"):
            start_session("test", master=f"k8s://{scheme}{address}")
        assert time.monotonic() - began < 40


@pytest.mark.parametrize("master", ["k8s://", "k8s://https://", "k8s://host:port"])
def test_kubernetes_without_an_address_is_one_sentence(master: str) -> None:
    with pytest.raises(BarnabasError, match="names no API server of Kubernetes: use k8s://HOST:PORT"):
        start_session("test", master=master)


def test_kubernetes_without_an_image_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark itself would start, and wait for ever for executors that it cannot make."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with socket.socket() as up:
        up.bind(("127.0.0.1", 0))
        up.listen()
        master = f"k8s://https://127.0.0.1:{up.getsockname()[1]}"
        with pytest.raises(BarnabasError, match=r"--conf spark\.kubernetes\.container\.image=NAME"):
            check_master(master, {})
        check_master(master, {"spark.kubernetes.executor.container.image": "spark-barnabas"})
        (tmp_path / "spark-defaults.conf").write_text("spark.kubernetes.container.image spark-barnabas\n")
        check_master(master, {})


@pytest.mark.parametrize("address", ["${env.RM}:8032", "rm:${port}", ""])
def test_where_only_hadoop_knows_the_resource_manager_it_is_not_judged(
    yarn: Callable[..., None], address: str
) -> None:
    yarn(address=address)
    check_master("yarn", {})


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("local-cluster[2,1,1024]", 2)]
)
def test_a_local_shuffle_has_as_many_parts_as_there_are_cores(master: str, cores: int) -> None:
    assert session._cores(master) == cores


@pytest.mark.skipif(sys.platform != "linux" or "PYSPARK_PYTHON" in os.environ, reason="not told to")
def test_a_local_session_forks_warm_workers_and_speaks_to_them_without_tcp(spark: Any) -> None:
    assert "PYSPARK_PYTHON" not in os.environ  # what is started later has a python of its own
    assert Path(spark.sparkContext.pythonExec).parent == private_folder()
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"

    def look(_: Any) -> Any:
        import sys

        # What no worker of tasks imports by itself.
        yield "pyspark.sql.worker.lookup_data_sources" in sys.modules

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect() == [True]


def test_arrow_in_java_does_not_check_each_byte(spark: Any) -> None:
    assert spark._jvm.org.apache.arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED is False


def test_what_goes_to_python_at_once_is_bounded_whatever_a_row_takes(spark: Any) -> None:
    def sizes(batches: Any) -> Any:
        import pyarrow as pa

        for batch in batches:
            counted = {"rows": [batch.num_rows], "bytes": [batch.column("value").nbytes]}
            yield pa.RecordBatch.from_pydict(counted)

    def of_size(size: int, rows: int) -> list[Any]:
        table = spark.range(0, rows, 1, 1).selectExpr(f"cast(repeat('x', {size}) as binary) as value")
        return list(table.mapInArrow(sizes, "rows long, bytes long").collect())

    large, small = of_size(300_000, 100), of_size(100, 40_000)
    assert max(each.bytes for each in large) < 4 * 1024 * 1024
    assert max(each.rows for each in small) > 10_000 or not has_read_limits()


def test_a_python_that_was_chosen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    with session._workers_python("local[2]"):
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    monkeypatch.delenv("PYSPARK_PYTHON")
    with session._workers_python("spark://elsewhere:7077"):
        assert "PYSPARK_PYTHON" not in os.environ


def test_workers_of_another_spark_do_not_run_the_pyspark_that_is_installed_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with session._workers_python("local[2]"):
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert "PYSPARK_PYTHON" not in os.environ


def test_what_java_threw_before_there_was_a_session_is_told(tmp_path: Path) -> None:
    """In a process of its own: this one may have its Java already."""
    program = (
        "from barnabas.spark.session import start_session\n"
        "settings = {'spark.jars.packages': 'no.such:thing:1', 'spark.jars.ivy': 'not/absolute'}\n"
        "start_session('test', master='local[1]', settings=settings)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert re.search(r"did not start on local\[1\]: .*Exception: .*must be absolute", done.stderr), (
        done.stderr
    )


SUBMITTED = """
import sys
from barnabas.spark.session import start_session
with start_session("test") as spark, open(sys.argv[1], "w") as found:
    for key in ("spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.session.timeZone"):
        print(spark.conf.get(key), file=found)
"""


@pytest.mark.slow(seconds=15)
@pytest.mark.java
def test_what_spark_submit_was_told_is_kept_and_the_rest_is_ours(tmp_path: Path) -> None:
    import pyspark

    script, found = tmp_path / "submitted.py", tmp_path / "found"
    script.write_text(SUBMITTED)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    told = ("--master", "local[1]", "--conf", "spark.sql.execution.arrow.maxBytesPerBatch=7m")
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(
        [submit, *told, script, found],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5_000:]
    assert found.read_text().split() == ["7m", "UTC"]


def test_pyspark_supports_the_pandas_that_is_pinned() -> None:
    asks = "from pyspark.sql.pandas.utils import require_minimum_pandas_version as ask; ask()"
    subprocess.run([sys.executable, "-W", "error::FutureWarning", "-c", asks], check=True, timeout=120)
