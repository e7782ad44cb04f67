"""What holds in the processes that Spark starts for Python: errors as sentences, warnings that are heard of, and no
garbage looked for in vain.

Used around everything that Spark calls in a process of its own.
"""

import functools
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.errors import BarnabasError
from barnabas.spark.heard import WAY, take_way

_OF_A_WORKER = "PYTHON_WORKER_FACTORY_"


@contextmanager
def plainly() -> Iterator[None]:
    """Let a BarnabasError pass as one sentence, without the traceback of a worker; warnings go to the driver."""
    if (way := os.environ.get(WAY)) and _in_a_worker():
        take_way(way)
    try:
        yield
    except BarnabasError as error:
        if _in_a_worker():
            # Spark's switch for this; the worker ends with the error, so no other traceback is hidden.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        error.__cause__ = None
        raise


def settle_in() -> None:
    """On an executor: what is imported stays. Spark collects garbage after each task, 40 ms to look at modules.

    A task may have imported more in its end: pyarrow asks pandas about what it is given, which is 9 ms to look at.
    """
    if _in_a_worker():
        _freeze(len(sys.modules))


@functools.cache
def _freeze(modules: int) -> None:
    """Once for as many modules: what tasks have made may be garbage."""
    gc.freeze()


def _in_a_worker() -> bool:
    return any(name.startswith(_OF_A_WORKER) for name in os.environ)
