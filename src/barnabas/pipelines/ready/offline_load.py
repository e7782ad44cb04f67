"""Any topic to a table: incremental, with a schema from its JSON, one row a key on request."""

from typing import Annotated

from pyspark.sql import DataFrame

from barnabas.pipelines import files, main, pipeline, topic


@pipeline(
    source=topic("{source}", json="{schema}"),
    sink=files("{format}", "{output}", partition_by=("{partition_by}",), newest_by="{newest_by}"),
)
def offline_load(
    records: DataFrame,
    source: Annotated[str, "the topic, or several by commas"] = "events",
    output: Annotated[str, "the folder of the table"] = "tables/events",
    format: Annotated[str, "parquet, delta, iceberg, orc, json, ..."] = "parquet",  # noqa: A002
    schema: Annotated[
        str, "auto: from the JSON in the topic; columns as SQL has them; a .json file; none"
    ] = "auto",
    newest_by: Annotated[
        str, "keep only the newest row of each value of this column, for instance _key"
    ] = "",
    partition_by: Annotated[str, "a column to partition the folder by"] = "",
) -> DataFrame:
    """Any topic to a Parquet, Delta or Iceberg table: what is new since the last time, with a schema from its JSON.

    The fields of the JSON become columns, beside _key, _topic, _partition, _offset and _timestamp. What is no JSON of
    that schema is kept as it came in _corrupt. With newest_by the table has one row a key, and a null value deletes it.
    """
    return records if newest_by else records.drop("_deleted")


if __name__ == "__main__":
    main()
