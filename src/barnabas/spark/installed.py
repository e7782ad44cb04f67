"""What PySpark has in one version and not, or not so, in another: the only place that knows. 4.1 is the oldest.

Used where PySpark has been imported.
"""

import functools
import inspect
from importlib.util import find_spec
from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


@functools.cache
def has_read_limits() -> bool:
    """Whether Spark lets a stream limit its batches: 4.2 and newer."""
    return find_spec("pyspark.sql.streaming.datasource") is not None


def arrow_schema(schema: StructType) -> Any:
    """The Arrow types in which Spark expects columns; times are in UTC, which 4.1 does not have to be told."""
    told = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **told)
