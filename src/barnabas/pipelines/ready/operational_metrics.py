"""Readings of many services: one-minute aggregates to a table, alerts to a topic."""

from typing import Annotated

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from barnabas.pipelines import main, parquet, pipeline, topic

READING = "time TIMESTAMP, service STRING, host STRING, metric STRING, value DOUBLE"


@pipeline(
    source=topic("{source}"),
    sinks={"minutes": parquet("{output}"), "alerts": topic("{alerts}", key="service")},
)
def operational_metrics(
    records: DataFrame,
    source: Annotated[str, "the topic of the readings"] = "metrics",
    output: Annotated[str, "the folder of the table of aggregates"] = "tables/metrics_by_minute",
    alerts: Annotated[str, "the topic for alerts"] = "alerts",
    thresholds: Annotated[str, "the mean above which a minute is alarming, by metric"] = (
        "latency_ms=200,error_rate=5,cpu_percent=90"
    ),
    window: Annotated[str, "what is aggregated"] = "1 minute",
    late: Annotated[str, "how late a reading may come and still count"] = "1 minute",
) -> dict[str, DataFrame]:
    """One-minute aggregates of many services' readings, and alerts where a mean is past its threshold.

    Each minute of a service and metric: readings, sum, mean, min, max. An alert goes to the topic, keyed by the
    service, when the minute is over and no late reading can change it.
    """
    reading = f.from_json(f.col("value").cast("string"), READING)
    readings = records.select(reading.alias("reading")).select("reading.*")
    readings = readings.where("time is not null and value is not null").withWatermark("time", late)
    minutes = aggregated(readings, window)
    return {"minutes": minutes, "alerts": alarming(minutes, thresholds)}


def aggregated(readings: DataFrame, window: str) -> DataFrame:
    value = f.col("value")
    found = readings.groupBy(f.window("time", window).alias("window"), "service", "metric").agg(
        f.count("*").alias("readings"),
        f.sum(value).alias("sum"),
        f.avg(value).alias("mean"),
        f.min(value).alias("min"),
        f.max(value).alias("max"),
    )
    return found.select(
        f.col("window.start").alias("began"), "service", "metric", "readings", "sum", "mean", "min", "max"
    )


def alarming(minutes: DataFrame, thresholds: str) -> DataFrame:
    limits = {
        metric: float(limit) for metric, _, limit in (each.partition("=") for each in thresholds.split(","))
    }
    threshold = f.create_map(*(f.lit(part) for pair in limits.items() for part in pair))[f.col("metric")]
    found = minutes.withColumn("threshold", threshold).where("mean > threshold")
    return found.select("service", "metric", "began", "mean", "max", "threshold", "readings")


if __name__ == "__main__":
    main()
