"""A pipeline in a process of its own, from a topic to Parquet in small batches, until it is killed or has caught up.

Run by test_killed.py: `python -m tests.pipelines.to_kill BOOTSTRAP TOPIC FOLDER`.
"""

import sys

from pyspark.sql import DataFrame

from barnabas.pipelines import parquet, pipeline, topic
from barnabas.pipelines.running import Run, run


@pipeline(
    source=topic("{source}", maxOffsetsPerTrigger="300"),
    sink=parquet("{output}", partition_by=("partition",)),
)
def to_kill(records: DataFrame, source: str = "", output: str = "") -> DataFrame:
    return records.selectExpr("partition", "offset", "string(value) as value")


def main(bootstrap: str, source: str, folder: str) -> None:
    # Most of what a driver does before it is killed is to start: let Java not try hard to be fast later.
    settings = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"}
    how = Run(
        bootstrap,
        {"source": source, "output": f"{folder}/table"},
        checkpoint=f"{folder}/checkpoint",
        once=True,
        master="local[2]",
        spark_settings=settings,
    )
    run(to_kill, how)


if __name__ == "__main__":
    main(*sys.argv[1:])
