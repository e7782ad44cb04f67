"""Puts a pipeline into Spark Declarative Pipelines: its tables and sinks become datasets and flows of theirs.

    # transformations/visits.py of a project made with `spark-pipelines init`
    from barnabas.pipelines.declarative import declare
    from barnabas.pipelines.ready.activity_tracking import activity_tracking

    declare(activity_tracking, bootstrap="broker:9092", gap="10 minutes")

Needs PySpark with Spark Connect: pip install 'pyspark[pipelines]'. There the tables live in the catalog of that
pipeline, under the names that the sinks have here; topics are sinks.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from barnabas.errors import BarnabasError
from barnabas.pipelines.declaration import Pipeline
from barnabas.pipelines.places import Files, Surroundings, Topic, as_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def declare(pipeline: Pipeline, *, bootstrap: str = "localhost:9092", **parameters: Any) -> None:
    """Declare the datasets and flows of a pipeline in the graph that is being made."""
    try:
        # PySpark ends the process where it does not find this.
        import_module("grpc")
        from pyspark import pipelines as declarative
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        raise BarnabasError(
            f"Spark Declarative Pipelines need {error.name}: pip install 'pyspark[pipelines]'."
        ) from None
    from barnabas.spark import register

    spark: Any = SparkSession.active()
    register(spark)
    settings = pipeline.settings({name: str(value) for name, value in parameters.items()})
    around = Surroundings(bootstrap)
    _, sinks = pipeline.places(settings)

    def flow(name: str, key: str | None) -> "Callable[[], DataFrame]":
        def rows() -> "DataFrame":
            made = pipeline.outputs(spark, around, settings)[name]
            return as_records(made, key) if key is not None else made

        return rows

    for name, place in sinks.items():
        if isinstance(place, Topic):
            options = {"kafka.bootstrap.servers": bootstrap, "topic": place.name, **place.options}
            declarative.create_sink(name, "barnabas", options)
            declarative.append_flow(target=name, name=f"{name}_flow")(flow(name, place.key))
        elif isinstance(place, Files):
            by = list(place.partition_by) or None
            declarative.create_streaming_table(name, format=place.format, partition_cols=by)
            declarative.append_flow(target=name, name=f"{name}_flow")(flow(name, None))
        else:
            raise BarnabasError(f"{place.describe()} is no sink for Spark Declarative Pipelines.")
