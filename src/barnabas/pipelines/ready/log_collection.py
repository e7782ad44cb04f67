"""Access lines of many hosts, parsed, to Parquet by day and hour; lines that cannot be read to a dead-letter topic."""

from typing import Annotated

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from barnabas.pipelines import main, parquet, pipeline, topic

FIELDS = (
    "address",
    "user",
    "moment",
    "method",
    "path",
    "protocol",
    "request",
    "status",
    "bytes",
    "referrer",
    "agent",
)
# Between quotes nginx writes a quote as \x22, Apache as \"; the possessive loop needs no stack for long ones.
QUOTED = r'((?:[^"\\]|\\.)*+)'
TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
# A request as it should be, or anything: nginx logs what it could make nothing of, an empty line and TLS alike.
REQUEST = rf'(?:({TOKEN}) +([^"\\ ](?:[^"\\]*[^"\\ ])?) +(HTTP/\d+(?:\.\d+)?)|{QUOTED})'
# The user may have blanks in it, or be empty.
COMBINED = rf'^(\S+) \S+ ([^"]*) \[([^\]"]+)\] "{REQUEST}" (\d{{3}}) (\d+|-) "{QUOTED}" "{QUOTED}"\s*$'
# Of the rest: a path with escapes in it, and HTTP/0.9, which names no protocol.
RARE = rf"^({TOKEN}) +(\S(?:.*?\S)??)(?: +(HTTP/\d+(?:\.\d+)?))?$"
OLDEST = rf"^{TOKEN} +/"
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
    referrer and agent, with the partition and offset it came from. Where the request itself is broken it is kept in
    the column request as it came, and method, path and protocol are null. Any other line goes to the dead-letter
    topic as it came, with headers that say where it came from and why it is there.
    """
    # One pass of the regular expression a line, not one a field: what matches is cut where the groups end.
    places = BETWEEN.join(f"${group}" for group in range(1, len(FIELDS) + 1))
    parts = f.split(f.regexp_replace(f.col("value").cast("string"), COMBINED, places), BETWEEN)
    cut = records.withColumn("parts", parts)
    cut = cut.withColumn("time", f.try_to_timestamp(_part("moment"), f.lit("dd/MMM/yyyy:HH:mm:ss Z")))
    # A null line is neither one nor the other in SQL, and must not fall between the two.
    is_line = f.coalesce((f.size("parts") == len(FIELDS)) & f.col("time").isNotNull(), f.lit(False))
    request = _part("request")
    fits = request.rlike(RARE) & (request.rlike(OLDEST) | request.rlike(r" HTTP/\d+(\.\d+)?$"))
    is_plain, is_rare = _part("method") != "", (_part("method") == "") & fits
    asked = [
        f.when(is_plain, _part(name)).when(is_rare, f.regexp_extract(request, RARE, group))
        for group, name in enumerate(("method", "path", "protocol"), 1)
    ]
    lines = cut.where(is_line).select(
        f.col("key").cast("string").alias("host"),
        "time",
        _part("address").alias("address"),
        unescaped(_part("user")).alias("user"),
        asked[0].alias("method"),
        unescaped(asked[1]).alias("path"),
        f.nullif(asked[2], f.lit("")).alias("protocol"),
        f.when(~is_plain & ~is_rare, request).alias("request"),
        _part("status").cast("int").alias("status"),
        f.coalesce(f.expr(f"try_cast(parts[{FIELDS.index('bytes')}] as bigint)"), f.lit(0)).alias("bytes"),
        *(unescaped(_part(name)).alias(name) for name in ("referrer", "agent")),
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


def unescaped(text: Column) -> Column:
    """What a log escapes, byte by byte (\\xC3\\xA9, \\x22) or with a backslash; as it came where that is no text."""
    pieces = f.regexp_extract_all(text, f.lit(r"(\\x[0-9A-Fa-f]{2}|\\.|[^\\]+|\\$)"))
    whole = f.aggregate(pieces, f.lit(b""), lambda so_far, piece: f.concat(so_far, _bytes_of(piece)))
    read = f.coalesce(f.try_validate_utf8(whole.cast("string")), text)
    return f.when(f.instr(text, "\\") > 0, read).otherwise(text)


def _bytes_of(piece: Column) -> Column:
    escaped = f.substring(piece, 2, 1)
    plain = f.when(piece.startswith("\\") & (f.length(piece) > 1), f.translate(escaped, "nrt", "\n\r\t"))
    is_hex = piece.rlike(r"^\\x[0-9A-Fa-f]{2}$")
    return f.when(is_hex, f.unhex(f.substring(piece, 3, 2))).otherwise(
        f.coalesce(plain, piece).cast("binary")
    )


def _part(name: str) -> Column:
    # get() gives null past the end of a short array, where [] is an error in ANSI mode.
    return f.get(f.col("parts"), f.lit(FIELDS.index(name)))


if __name__ == "__main__":
    main()
