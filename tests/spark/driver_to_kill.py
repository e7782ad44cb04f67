"""A streaming query in a process of its own, from a topic to Parquet, until it is killed or has read everything.

Run by test_kill_nine.py: `python -m tests.spark.driver_to_kill BOOTSTRAP TOPIC FOLDER HOW`, where HOW is a number of
offsets a batch, `all` of what is there, or `on` for whatever comes, for ever.
"""

import sys

from barnabas.spark import register
from barnabas.spark.checkpoints import start_query
from barnabas.spark.session import start_session


def main(bootstrap: str, topic: str, folder: str, how: str) -> None:
    # Most of what a driver does before it is killed is to start: let Java not try hard to be fast later.
    settings = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"}
    spark = start_session("to be killed", master="local[2]", settings=settings)
    register(spark)
    source = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    rows = (source.option("maxOffsetsPerTrigger", how) if how.isdigit() else source).load()
    # Nothing is there twice: dropDuplicates is here for the state that it keeps, which must not be torn either.
    rows = rows.selectExpr("partition", "offset", "string(value) as value").dropDuplicates(
        ["partition", "offset"]
    )
    sink = rows.writeStream.format("parquet").option("path", f"{folder}/rows")
    sink = sink if how == "on" else sink.trigger(availableNow=True)
    start_query(spark, sink, f"{folder}/checkpoint").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
