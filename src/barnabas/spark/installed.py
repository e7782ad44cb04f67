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


def json_lines(texts: Any) -> Any:
    """What `read.json` is given for a DataFrame of one column of JSON: itself, but 4.1 wants each text as a row."""
    return texts if has_read_limits() else texts.rdd.map(lambda row: row[0])


def session_settings() -> dict[str, str]:
    """What our sessions are told in one version and not in another."""
    if has_read_limits():
        # Whatever goes to Python is bounded in bytes, so its rows need not be few: with Spark's 10,000 at most, a write
        # of rows of 100 B takes 10 % longer.
        return {"spark.sql.execution.arrow.maxRecordsPerBatch": "100000"}
    # Without it an availableNow query is a single batch: windows that its records have closed would stay in its state.
    return {"spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true"}
