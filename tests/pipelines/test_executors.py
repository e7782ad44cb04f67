"""One machine and several executors give the same counts and sums, with the command and with spark-submit."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyspark
import pytest

from barnabas.pipelines.finding import find
from barnabas.pipelines.running import Run, run_on
from tests.brokers import Brokers
from tests.conftest import ROOT
from tests.pipelines.conftest import Made
from tests.pipelines.standalone import Standalone

pytestmark = [pytest.mark.slow(seconds=100), pytest.mark.java, pytest.mark.timeout(900)]

COMMAND = Path(sys.executable).with_name("barnabas")
WHEN_ALL_ARE_THERE = (
    # Spark knows what all are only where it is told how many cores there are to be, and waits half a minute for them.
    *("--conf", "spark.cores.max=2", "--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"),
    *("--conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=240s"),
)
PIPELINE = '''
"""Readings, and which process had them in hand."""
import os
import pyarrow as pa
from barnabas.pipelines import main, parquet, pipeline, topic

READING = "service STRING, value DOUBLE"

def with_process(batches):
    for batch in batches:
        column = pa.array([os.getppid()] * batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, "process"])

@pipeline(source=topic("{source}"), sink=parquet("{output}"))
def readings(records, source: str = "metrics", output: str = "out"):
    """Readings, and the parent of the Python worker that had them: one an executor."""
    found = records.selectExpr(f"from_json(cast(value as string), '{READING}') r", "partition", "offset")
    found = found.select("r.*", "partition", "offset")
    schema = "service STRING, value DOUBLE, partition INT, offset LONG, process LONG"
    return found.mapInArrow(with_process, schema)

if __name__ == "__main__":
    main()
'''


def test_every_master_gives_the_same_counts_and_sums(
    spark: Any, broker: Brokers, made: Callable[..., Made], tmp_path: Path
) -> None:
    readings = made("metrics", 20_000, 50.0)
    file = tmp_path / "readings.py"
    file.write_text(PIPELINE)
    given = {"source": readings.topic, "output": str(tmp_path / "local")}
    run_on(
        spark, find(str(file)), Run(broker.bootstrap, given, str(tmp_path / "local-checkpoint"), once=True)
    )

    # The command with two executor processes, and spark-submit with a master and two workers.
    run(
        [
            COMMAND,
            "pipeline",
            "run",
            file,
            "--master",
            "local-cluster[2,1,1024]",
            *WHEN_ALL_ARE_THERE,
        ],
        readings,
        broker,
        tmp_path / "two",
    )
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    with Standalone(tmp_path, workers=2) as cluster:
        to_both = ("--master", cluster.master, *WHEN_ALL_ARE_THERE)
        run([submit, *to_both, file], readings, broker, tmp_path / "standalone")

    values = [json.loads(row["value"]) for row in readings.rows]
    counts = Counter(each["service"] for each in values)
    total = sum(each["value"] for each in values)
    for name, executors in (("local", 1), ("two", 2), ("standalone", 2)):
        rows = ds.dataset(tmp_path / name, format="parquet").to_table().to_pylist()
        assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows) == 20_000, name
        assert Counter(row["service"] for row in rows) == counts, name
        assert sum(row["value"] for row in rows) == pytest.approx(total), name
        assert len({row["process"] for row in rows}) == executors, f"{name}: so many processes had records"


def run(command: list[str | Path], readings: Made, broker: Brokers, output: Path) -> None:
    """Run the pipeline's file with a command, until it has caught up."""
    given = ("--once", "--bootstrap", broker.bootstrap, "--checkpoint", f"{output}-checkpoint")
    parameters = ("--set", f"source={readings.topic}", "--set", f"output={output}")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ended = subprocess.run(
        [*command, *given, *parameters],
        cwd=output.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[:20_000]
