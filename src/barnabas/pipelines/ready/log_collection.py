"""Access lines of many hosts, parsed, to Parquet by day and hour; lines that cannot be read to a dead-letter topic."""

from typing import Annotated

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from barnabas.pipelines import main, parquet, pipeline, topic

FIELDS = ("address", "user", "moment", "method", "path", "protocol", "status", "bytes", "referrer", "agent")
COMBINED = r'^(\S+) \S+ (\S+) \[([^\]]+)\] "(\S+) (\S+) ([^"]*)" (\d{3}) (\d+|-) "([^"]*)" "([^"]*)"$'
BETWEEN = "\u001f"


@pipeline(
    source=topic("{source}"),
    sinks={"lines": parquet("{output}", partition_by=("day", "hour")), "bad": topic("{dead_letters}")},
)
def log_collection(
    records: DataFrame,
    source: Annotated[str, "the topic of the lines; the key of a record is its host"] = "logs",
    output: Annotated[str, "the folder of the table"] = "tables/logs",
    dead_letters: Annotated[str, "the topic for lines that are no access lines"] = "logs-dead",
) -> dict[str, DataFrame]:
    """nginx access lines from many hosts to partitioned Parquet, bad lines to a dead-letter topic.

    A line in nginx's combined format becomes host, time, address, user, method, path, protocol, status, bytes,
    referrer and agent, with the partition and offset it came from. Any other line goes to the dead-letter topic as
    it came, with headers that say where it came from and why it is there.
    """
    # One pass of the regular expression a line, not one a field: what matches is cut where the groups end.
    places = BETWEEN.join(f"${group}" for group in range(1, len(FIELDS) + 1))
    parts = f.split(f.regexp_replace(f.col("value").cast("string"), COMBINED, places), BETWEEN)
    cut = records.withColumn("parts", parts)
    cut = cut.withColumn("time", f.try_to_timestamp(_part("moment"), f.lit("dd/MMM/yyyy:HH:mm:ss Z")))
    # A null line is neither one nor the other in SQL, and must not fall between the two.
    is_line = f.coalesce((f.size("parts") == len(FIELDS)) & f.col("time").isNotNull(), f.lit(False))
    lines = cut.where(is_line).select(
        f.col("key").cast("string").alias("host"),
        "time",
        *(_part(name).alias(name) for name in ("address", "user", "method", "path", "protocol")),
        _part("status").cast("int").alias("status"),
        f.coalesce(f.expr(f"try_cast(parts[{FIELDS.index('bytes')}] as bigint)"), f.lit(0)).alias("bytes"),
        *(_part(name).alias(name) for name in ("referrer", "agent")),
        "partition",
        "offset",
        f.to_date("time").alias("day"),
        f.hour("time").alias("hour"),
    )
    origin = f.concat_ws("-", "topic", "partition", "offset").cast("binary")
    why = f.lit("not a line of nginx's combined format").cast("binary")
    headers = f.array(
        f.struct(f.lit("source").alias("key"), origin.alias("value")),
        f.struct(f.lit("reason").alias("key"), why.alias("value")),
    )
    return {"lines": lines, "bad": cut.where(~is_line).select("key", "value", headers.alias("headers"))}


def _part(name: str) -> Column:
    # get() gives null past the end of a short array, where [] is an error in ANSI mode.
    return f.get(f.col("parts"), f.lit(FIELDS.index(name)))


if __name__ == "__main__":
    main()
