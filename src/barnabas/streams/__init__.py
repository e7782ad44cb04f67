"""Streams: map, filter, window, join, aggregate and branch, compiled to Spark's Structured Streaming.

There is no engine here: a `Stream` is a DataFrame and the few facts that let mistakes be told early. The same
steps run on batches. Needs the extra `barnabas[spark]`.
"""

from barnabas.errors import BarnabasError

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise BarnabasError("Streams run on PySpark: pip install 'barnabas[spark]'.") from error

from barnabas.streams.aggregates import (
    approx_count_distinct,
    avg,
    collect,
    count,
    first,
    last,
    max,
    min,
    sum,
)
from barnabas.streams.branches import Branches
from barnabas.streams.outputs import Output, Run, run
from barnabas.streams.refusals import StreamError
from barnabas.streams.stream import Stream
from barnabas.streams.windows import Windowed

__all__ = [
    "Branches",
    "Output",
    "Run",
    "Stream",
    "StreamError",
    "Windowed",
    "approx_count_distinct",
    "avg",
    "collect",
    "count",
    "first",
    "last",
    "max",
    "min",
    "run",
    "sum",
]
