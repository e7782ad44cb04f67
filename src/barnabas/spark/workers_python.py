"""Owns which Python runs our data source in a session that is there already.

Called by `register`. PySpark takes `python3` from the PATH for its workers unless PYSPARK_PYTHON says another: in a
script run by `.venv/bin/python` that is a Python without our packages. Spark keeps a Python with every function and
every data source, so ours gets the right one and nothing else of the session changes. Always holds: a Python that
was chosen is left alone; one that cannot run our source is told of in one sentence, before the first read.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.errors import BarnabasError
from barnabas.spark.worker_forkserver import private_folder, python_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNLESS_TOLD = "python3"
_NEEDED = ("barnabas", "pyarrow")
_ASKS = "import importlib.util as u; print(*(n for n in {} if u.find_spec(n) is None))"
_LIMIT_S = 30


@contextmanager
def right_python(spark: "SparkSession") -> Iterator[None]:
    """What is registered meanwhile is run by a Python that has our packages."""
    try:
        context: Any = spark.sparkContext
    except Exception:  # Spark Connect: the workers are the server's
        yield
        return
    told = context.pythonExec
    if told != _UNLESS_TOLD:
        _check(told, context)
    if told != _UNLESS_TOLD or not context.master.startswith("local"):
        yield
        return
    context.pythonExec = str(_ours())
    try:
        yield
    finally:
        context.pythonExec = told


def has_its_own_spark() -> bool:
    """Whether Spark's workers are to run the PySpark that is installed here, and not one of another SPARK_HOME."""
    import pyspark

    home = os.environ.get("SPARK_HOME")
    return not home or Path(home).resolve() == Path(pyspark.__file__).resolve().parent


def _ours() -> Path | str:
    """This Python, from a process that has imported everything where that can be."""
    return (python_of(private_folder()) if has_its_own_spark() else None) or sys.executable


def _check(python: str, context: Any) -> None:
    """A Python on this machine can be asked; packages may also come with the job."""
    is_ours = python == sys.executable or Path(python).parent == private_folder()
    if is_ours or not context.master.startswith("local") or context._python_includes:
        return
    try:
        asked = subprocess.run(
            [python, "-c", _ASKS.format(_NEEDED)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return  # Spark says itself that it cannot be run
    if missing := asked.stdout.split():
        raise BarnabasError(
            f"Spark's workers run {python}, which has no {missing[0]}: set PYSPARK_PYTHON to a Python that has "
            f"barnabas[spark], such as {sys.executable}, before the session starts."
        )
