"""Pipelines on Spark: a small Python file says where rows come from, what becomes of them, and where they go.

    from pyspark.sql import DataFrame
    from barnabas.pipelines import main, parquet, pipeline, topic

    @pipeline(source=topic("{orders}"), sink=parquet("{output}"))
    def paid(records: DataFrame, orders: str = "orders", output: str = "tables/paid") -> DataFrame:
        return records.where("value like '%paid%'").selectExpr("cast(value as string) as value", "timestamp")

    if __name__ == "__main__":
        main()

`barnabas pipeline run FILE` runs it on local Spark or on a given master, `spark-submit FILE` wherever Spark runs.
Arguments with defaults are the parameters: `--set output=/data/paid` changes one, `{output}` stands for it in places.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.pipelines.declaration import Pipeline, pipeline
    from barnabas.pipelines.places import console, delta, files, iceberg, parquet, topic
    from barnabas.pipelines.submitted import main

__all__ = ["Pipeline", "console", "delta", "files", "iceberg", "main", "parquet", "pipeline", "topic"]

_HOMES = {
    "Pipeline": "declaration",
    "console": "places",
    "delta": "places",
    "files": "places",
    "iceberg": "places",
    "main": "submitted",
    "parquet": "places",
    "pipeline": "declaration",
    "topic": "places",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"barnabas.pipelines has no {name!r}")
    return getattr(import_module(f"barnabas.pipelines.{home}"), name)
