"""Owns where the tests find Spark's own Kafka connector."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def connector_jars() -> list[Path]:
    source = importlib.util.spec_from_file_location(
        "spark_kafka_jars", ROOT / "tools" / "spark_kafka_jars.py"
    )
    assert source is not None
    assert source.loader is not None
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    found: list[Path] = module.jars()
    return found
