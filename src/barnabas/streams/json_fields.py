"""Owns how JSON becomes columns, and what becomes of values that are none. Used by `Stream.json`.

Always holds: a value is parsed once, whatever is done with those that do not parse.
"""

from pyspark.sql import DataFrame, functions
from pyspark.sql.types import StructType

from barnabas.streams.refusals import StreamError, analysed, require_columns

_NO_JSON = "a value is no JSON of the schema (bad='drop' or bad='COLUMN' lets it pass): "
_WAYS = ("fail", "null", "drop")


def with_json_fields(frame: DataFrame, schema: StructType, column: str, bad: str) -> DataFrame:
    """The frame with the fields of a JSON column in its place; `bad` is as `Stream.json` has it."""
    require_columns(frame, [column], "json")
    names = schema.fieldNames()
    unparsed = bad if bad not in _WAYS else "_unparsed"
    if unparsed in names:
        raise StreamError(f"json: the schema has a field {unparsed} already; give bad= another name.")
    kept = [name for name in frame.columns if name not in (column, unparsed, *names)]
    text = functions.col(f"`{column}`").cast("string")
    if bad == "null":
        parsed = functions.from_json(text, schema)
    else:
        wider = StructType([*schema.fields]).add(unparsed, "string")
        parsed = functions.from_json(text, wider, {"columnNameOfCorruptRecord": unparsed})
    with analysed(frame, "json"):
        # As generated columns: below a projection Spark would push the filter, and parse for it once more.
        made = frame.select(*(f"`{name}`" for name in kept), functions.inline(functions.array(parsed)))
        complaint = functions.col(f"`{unparsed}`")
        if bad == "drop":
            return made.filter(complaint.isNull()).drop(unparsed)
        if bad == "fail":
            error = functions.raise_error(
                functions.concat(functions.lit(_NO_JSON), functions.substring(complaint, 1, 200))
            )
            return made.filter(functions.when(complaint.isNotNull(), error).otherwise(True)).drop(unparsed)
        return made
