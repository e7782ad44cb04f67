"""Owns how a Spark session starts: on local Spark or a given master, quietly, or with one sentence on why not.

Called by pipelines, connectors, the demo and tests; under spark-submit the session that is there already is used.
Always holds: a missing Java, a wrong master or one that does not answer is told within seconds, before Spark
starts to look for it.
"""

import functools
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.errors import BarnabasError
from barnabas.spark.heard import WAY, open_way
from barnabas.spark.masters import check_master
from barnabas.spark.sentences import sentence_of
from barnabas.spark.worker_forkserver import private_folder, python_of
from barnabas.spark.workers_python import has_its_own_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
DEFAULT_MASTER = "local[*]"

_PYTHON = "PYSPARK_PYTHON"
_LONGEST_SOCKET_FOLDER = 61
_JAVA_TIMEOUT_S = 30


def start_session(
    name: str,
    *,
    master: str | None = None,
    jars: Sequence[str | Path] = (),
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> "SparkSession":
    """A Spark session; `master` is local[*] where neither we nor spark-submit were told another.

    What Spark itself has to say goes to the file `log`, or nowhere: what a person must know is raised.
    """
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    if not under_submit:
        master = master or DEFAULT_MASTER
        check_master(master, settings or {})
        _check_java()
    sql = _pyspark_sql()
    builder = sql.SparkSession.builder.appName(name)
    where = None if under_submit else master
    told = _told_to_submit() if under_submit else frozenset()
    wanted = {key: value for key, value in _defaults(where).items() if key not in told} | dict(settings or {})
    if jars:
        wanted["spark.jars"] = ",".join(str(jar) for jar in jars)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    if master is not None:
        builder = builder.master(master)
    # What fails in Python under Spark is logged with its traceback, and then raised again: once is enough.
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    with _spark_speaks_to(log) as said, _workers_python(where), _warnings_heard(where):
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise BarnabasError(
                f"Spark did not start on {master or 'this master'}: {_reason(error, said)}."
            ) from error


def make_active(spark: "SparkSession") -> None:
    """Make a session the one of this thread: Spark asks only that one for data sources written in Python."""
    # The only public call that does; nothing is read or run.
    spark.createDataFrame([], "nothing INT")


def _told_to_submit() -> frozenset[str]:
    """What spark-submit was told, by --conf or spark-defaults.conf: a builder's setting would take its place."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # else a SparkConf knows of no Java yet, and of nothing that was told to it
    return frozenset(key for key, _ in SparkConf().getAll())


def _defaults(master: str | None) -> dict[str, str]:
    from barnabas.spark.installed import session_settings  # where there is a PySpark

    settings = session_settings() | {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # What goes to Python at once. Smaller pieces cost more; 6 and 10 MiB, with rows of 1 KiB, only more memory.
        "spark.sql.execution.arrow.maxBytesPerBatch": "3m",
    }
    if master is not None and master.startswith("local"):
        # 200 shuffle partitions (Spark's default) make each small batch of a stream take seconds.
        settings |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(_cores(master)),
            # Arrow in Java checks every byte it is asked for against the ends of its buffer: 10 % of a read or write.
            # What it reads was written by Arrow, in a process of ours.
            "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true",
        }
        if sys.platform == "linux" and len(str(private_folder())) <= _LONGEST_SOCKET_FOLDER:
            # Over TCP each task waits 40 ms for the second thing that Spark says to it, held back by Nagle's algorithm.
            settings |= {
                "spark.python.unix.domain.socket.enabled": "true",
                "spark.python.unix.domain.socket.dir": str(private_folder()),
            }
    return settings


@contextmanager
def _workers_python(master: str | None) -> Iterator[None]:
    """Spark keeps the `python` it is told of at its start; else it takes what the PATH has, without our packages."""
    if master is None or not master.startswith("local") or _PYTHON in os.environ:
        yield
        return
    warm = python_of(private_folder()) if has_its_own_spark() else None
    os.environ[_PYTHON] = str(warm or sys.executable)
    try:
        yield
    finally:
        del os.environ[_PYTHON]


@contextmanager
def _warnings_heard(master: str | None) -> Iterator[None]:
    """Spark's process keeps the environment of its start, and gives it to its workers."""
    if sys.platform == "win32" or master is None or not master.startswith("local"):
        yield
        return
    os.environ[WAY] = str(open_way(private_folder()))
    try:
        yield
    finally:
        del os.environ[WAY]


def _cores(master: str) -> int:
    numbers = [int(number) for number in re.findall(r"\d+", master)]
    if master.startswith("local-cluster"):
        return numbers[0] * numbers[1]
    if not numbers:
        return 1 if master == "local" else (os.cpu_count() or 1)
    return numbers[0] if "*" not in master else (os.cpu_count() or 1)


@functools.cache
def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no `java` on the PATH"
        raise BarnabasError(f"Spark needs Java {OLDEST_JAVA} or newer, and {where}: install a JDK.")
    try:
        asked = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BarnabasError(f"Spark needs Java, and {java} does not run: {error}.") from error
    version = re.search(r'version "(\d+)', asked.stderr)
    if version is None or int(version[1]) < OLDEST_JAVA:
        found = f"version {version[1]}" if version else "no Java that tells its version"
        raise BarnabasError(f"Spark needs Java {OLDEST_JAVA} or newer, and {java} is {found}.")


def _pyspark_sql() -> Any:
    try:
        from pyspark import sql
    except ImportError as error:
        raise BarnabasError("This needs PySpark: pip install 'barnabas[spark]'.") from error
    return sql


@contextmanager
def _spark_speaks_to(log: Path | None) -> Iterator[Path]:
    """Spark's process inherits our stderr when it starts, and keeps it: give it a file instead for that moment."""
    fd, name = (None, str(log)) if log else tempfile.mkstemp(prefix="barnabas-spark-", suffix=".log")
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log else fd
    assert target is not None
    sys.stderr.flush()
    ours = os.dup(2)
    os.dup2(target, 2)
    try:
        yield Path(name)
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)
        os.close(target)
        if log is None:
            Path(name).unlink(missing_ok=True)


def _reason(error: Exception, said: Path) -> str:
    """What Java says, or, where it ended before it could be asked, the cause that it named, or its first complaint."""
    if "JAVA_GATEWAY_EXITED" in str(error):
        spoken = said.read_text(errors="replace").splitlines()
        complaints = [line.strip() for line in spoken if "rror" in line or "xception" in line]
        causes = [line for line in complaints if line.startswith("Caused by: ")]
        if complaints:
            line = (causes or complaints)[0]
            return line.removeprefix('Exception in thread "main" ').removeprefix("Caused by: ").rstrip(".")
    return sentence_of(error)
