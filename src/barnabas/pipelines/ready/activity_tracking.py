"""What visitors do: their sessions to a topic, the top pages of every window to a table."""

from typing import Annotated

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from barnabas.pipelines import main, parquet, pipeline, topic

EVENT = "time TIMESTAMP, user STRING, event STRING, page STRING, query STRING, target STRING"


@pipeline(
    source=topic("{source}"),
    sinks={"sessions": topic("{sessions}", key="user"), "pages": parquet("{output}")},
)
def activity_tracking(
    records: DataFrame,
    source: Annotated[str, "the topic of the events"] = "activity",
    sessions: Annotated[str, "the topic for sessions that are over"] = "sessions",
    output: Annotated[str, "the folder of the table of top pages"] = "tables/top_pages",
    gap: Annotated[str, "how long a visitor is silent before a session is over"] = "30 minutes",
    window: Annotated[str, "the length of a window for top pages"] = "5 minutes",
    top: Annotated[int, "how many pages of a window are kept"] = 10,
    late: Annotated[str, "how late an event may come and still count"] = "10 minutes",
) -> dict[str, DataFrame]:
    """Sessions and top pages of a site, in event time, from page views, searches and clicks.

    A session is what a visitor does without a pause longer than `gap`; it goes to the topic once it is over and no late
    event can change it. The pages of a window are ranked by their views once the window is over.
    """
    events = parsed(records).withWatermark("time", late)
    return {"sessions": sessions_of(events, gap), "pages": top_pages(events, window, top)}


def parsed(records: DataFrame) -> DataFrame:
    """The events; what is no JSON, or lacks a time or a user, is left out."""
    event = f.from_json(f.col("value").cast("string"), EVENT)
    return (
        records.select(event.alias("event")).select("event.*").where("time is not null and user is not null")
    )


def sessions_of(events: DataFrame, gap: str) -> DataFrame:
    grouped = events.groupBy(f.session_window("time", gap).alias("session"), "user")
    counts = [f.count_if(f.col("event") == kind).alias(f"{kind}s") for kind in ("view", "search", "click")]
    ends = f.min("time").alias("began"), f.max("time").alias("ended")
    found = grouped.agg(*ends, f.count("*").alias("events"), *counts)
    seconds = f.timestamp_diff("MILLISECOND", "began", "ended") / 1000
    return found.select(
        "user", "began", "ended", seconds.alias("seconds"), "events", "views", "searchs", "clicks"
    ).withColumnRenamed("searchs", "searches")


def top_pages(events: DataFrame, window: str, top: int) -> DataFrame:
    viewed = events.where("event = 'view'").groupBy(f.window("time", window).alias("window"), "page").count()
    # A second aggregate over the same windows: Spark has no ranking over streams.
    of_window = viewed.groupBy(f.window(f.window_time("window"), window).alias("window"))
    # Most views first, and by name where they are equal: an array is sorted by its fields in their order.
    ordered = f.sort_array(f.collect_list(f.struct((-f.col("count")).alias("less"), "page")))
    ranked = of_window.agg(ordered.alias("pages")).select(
        "window", f.posexplode(f.slice("pages", 1, top)).alias("place", "found")
    )
    return ranked.select(
        f.col("window.start").alias("began"),
        f.col("window.end").alias("ended"),
        (f.col("place") + 1).alias("rank"),
        f.col("found.page").alias("page"),
        (-f.col("found.less")).alias("views"),
    )


if __name__ == "__main__":
    main()
