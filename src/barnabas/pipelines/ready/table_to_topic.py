"""The way back: the rows of a table to a topic, and from then on the rows of each new file."""

from typing import Annotated

from pyspark.sql import DataFrame

from barnabas.pipelines import files, main, pipeline, topic


@pipeline(source=files("{format}", "{table}", stream=True), sink=topic("{topic}", key="{key}"))
def table_to_topic(
    rows: DataFrame,
    table: Annotated[str, "the folder of the table"] = "tables/events",
    topic: Annotated[str, "where its rows go"] = "events",
    key: Annotated[str, "the column that becomes the key of a record"] = "",
    format: Annotated[str, "parquet, delta, orc, json, ..."] = "parquet",  # noqa: A002
) -> DataFrame:
    """The rows of a table to a topic, as JSON with a key of your choice; run again, only what is new.

    Columns that begin with an underscore, such as offline-load adds, are left out of the JSON.
    """
    hidden = [name for name in rows.columns if name.startswith("_") and name != key]
    return rows.drop(*hidden)


if __name__ == "__main__":
    main()
