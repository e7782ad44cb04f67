"""A checkpoint belongs to a pipeline with its sources and sinks: another run does not go on from it by mistake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from barnabas.errors import BarnabasError
from barnabas.pipelines.belonging import default_checkpoint
from barnabas.pipelines.finding import find
from barnabas.pipelines.running import Ended, Run, run_on
from tests.brokers import Brokers
from tests.pipelines.conftest import Made
from tests.pipelines.test_command import barnabas


def rows_in(folder: Path) -> int:
    return ds.dataset(folder, format="parquet").count_rows()


def default_of(**parameters: str) -> str:
    pipeline = find("offline-load")
    return default_checkpoint(pipeline, pipeline.settings(parameters))


def test_other_sources_and_sinks_have_another_checkpoint() -> None:
    assert default_of(source="a", output="x").startswith("checkpoints/offline-load-")
    assert default_of(source="a", output="x") == default_of(source="a", output="x")
    others = [
        default_of(source="a", output="x"),
        default_of(source="b", output="x"),
        default_of(source="a", output="y"),
        default_of(source="a", output="x", newest_by="_key"),
        default_of(source="a", output="x", format="orc"),
    ]
    assert len(set(others)) == len(others)


@pytest.mark.java
def test_a_checkpoint_of_another_run_is_refused_until_it_is_reset(
    spark: Any, broker: Brokers, made: Callable[..., Made], tmp_path: Path
) -> None:
    topic = made("metrics", 100, 5.0).topic

    def load(output: str, *, reset: bool = False) -> Ended:
        parameters = {"source": topic, "output": str(tmp_path / output)}
        how = Run(broker.bootstrap, parameters, str(tmp_path / "checkpoint"), once=True, reset=reset)
        return run_on(spark, find("offline-load"), how)

    assert load("first").rows == {"out": 100}
    assert load("first").rows == {"out": 0}
    with pytest.raises(BarnabasError) as told:
        load("second")
    assert str(told.value) == (
        f"The checkpoint {tmp_path}/checkpoint is that of offline-load from topic {topic} to parquet {tmp_path}/first, "
        f"and this is offline-load from topic {topic} to parquet {tmp_path}/second: say another --checkpoint, or "
        "--reset to begin anew."
    )
    assert load("second", reset=True).rows == {"out": 100}
    assert rows_in(tmp_path / "second") == rows_in(tmp_path / "first") == 100


@pytest.mark.slow(seconds=60)
@pytest.mark.timeout(900)
@pytest.mark.java
def test_two_documented_loads_in_a_row_load_both(
    broker: Brokers, made: Callable[..., Made], tmp_path: Path
) -> None:
    orders, customers = made("metrics", 120, 5.0).topic, made("activity", 80, 1.0).topic
    for topic, table, more in ((orders, "orders", ()), (customers, "customers", ("--set", "newest_by=_key"))):
        given = ("--once", "--set", f"source={topic}", "--set", f"output=tables/{table}", *more)
        ended = barnabas(
            "pipeline", "run", "offline-load", *given, cwd=tmp_path, BARNABAS_BOOTSTRAP=broker.bootstrap
        )
        assert ended.returncode == 0, ended.stderr
    assert rows_in(tmp_path / "tables" / "orders") == 120
    assert 0 < rows_in(tmp_path / "tables" / "customers") <= 80
