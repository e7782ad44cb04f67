"""How an error of ours reaches a person who uses Spark: as its sentence, without the traceback of a worker.

Used around everything that Spark calls in a process of its own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.errors import BarnabasError

_IN_A_WORKER = "PYTHON_WORKER_FACTORY_SECRET"


@contextmanager
def plainly() -> Iterator[None]:
    """Let a BarnabasError pass as one sentence."""
    try:
        yield
    except BarnabasError as error:
        if _IN_A_WORKER in os.environ:
            # Spark's switch for this; the worker ends with the error, so nobody else's traceback is hidden.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        error.__cause__ = None
        raise
