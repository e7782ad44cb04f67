"""A script as anybody would write it: a session that Barnabas did not start, `register`, a read and a stream.

Run by test_register.py: `python -m tests.spark.plain_session BOOTSTRAP TOPIC FOLDER`.
"""

import sys

from pyspark.sql import SparkSession

import barnabas.spark


def main(bootstrap: str, topic: str, folder: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    python = spark.sparkContext.pythonExec
    barnabas.spark.register(spark)
    assert spark.sparkContext.pythonExec == python, "other functions keep their Python"
    where = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    print("batch", spark.read.format("barnabas").options(**where).load().count())  # noqa: T201
    stream = spark.readStream.format("barnabas").options(**where).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True)
    query = query.start()
    query.awaitTermination()
    print("stream", sum(each["numInputRows"] for each in query.recentProgress))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
