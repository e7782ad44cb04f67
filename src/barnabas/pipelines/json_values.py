"""Reads values of a topic as JSON: which schema they have, and the columns that come of it.

Used by `places.Topic` with `json`. Always holds: a schema that was found once is kept beside the checkpoint, so that a
pipeline that goes on writes the same columns as before; no record is dropped for not fitting it.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.errors import BarnabasError
from barnabas.pipelines.kept import keep, read_kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORRUPT = "_corrupt"
SAMPLE = 10_000
_META = ("key", "topic", "partition", "offset", "timestamp")


def columns(records: "DataFrame", schema: Any) -> "DataFrame":
    """The fields of the value as columns, beside _key, _topic, _partition, _offset, _timestamp and _deleted."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructType

    text = f.col("value").cast("string")
    meta = [f.col(name).alias(f"_{name}") for name in _META if name != "key"]
    about = [f.col("key").cast("string").alias("_key"), *meta, f.col("value").isNull().alias("_deleted")]
    if schema is None:
        return records.select(*about, text.alias("value"))
    wanted = StructType([*schema.fields]).add(CORRUPT, StringType())
    value = f.from_json(text, wanted, {"columnNameOfCorruptRecord": CORRUPT})
    return records.select(*about, value.alias("value")).select(
        *(f"_{name}" for name in _META), "_deleted", "value.*"
    )


def schema_of(spark: "SparkSession", wanted: str, sample: "DataFrame", path: str) -> Any:
    """The schema that is wanted: none, as SQL or in a file, or found in a sample and kept under this path."""
    from pyspark.sql.types import StructType, _parse_datatype_string

    from barnabas.spark.installed import json_lines

    if wanted in ("", "none"):
        return None
    if wanted.endswith(".json"):
        return StructType.fromJson(json.loads(_read(wanted)))
    if wanted != "auto":
        try:
            return _parse_datatype_string(wanted)
        except Exception as error:
            raise BarnabasError(
                f"{wanted!r} are no columns as SQL has them: try 'id BIGINT, name STRING'."
            ) from error
    kept = read_kept(spark, path)
    if kept is not None:
        return StructType.fromJson(json.loads(kept))
    values = sample.selectExpr("cast(value as string) as value").where("value is not null").limit(SAMPLE)
    found = spark.read.option("columnNameOfCorruptRecord", CORRUPT).json(json_lines(values))
    fields = [field for field in found.schema.fields if field.name != CORRUPT]
    if not fields:
        raise BarnabasError(
            "There is no JSON object in the topic to take a schema from: set schema=none, or say it."
        )
    schema = StructType(fields)
    keep(spark, path, schema.json())
    return schema


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BarnabasError(f"The schema {path} cannot be read: {error}.") from None
