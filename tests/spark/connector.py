"""Owns where the tests find jars for Spark: its own Kafka connector, and the table formats that fit it."""

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def connector_jars() -> list[Path]:
    found: list[Path] = _tool("spark_kafka_jars").jars()
    return found


def table_formats() -> set[str]:
    """Of Delta and Iceberg, those that have a release for the installed PySpark."""
    return set(_tool("table_jars").fitting())


def table_jars() -> list[Path]:
    found: list[Path] = _tool("table_jars").jars()
    return found


def table_settings() -> dict[str, str]:
    """What a session must be told for the table formats that it has."""
    found: dict[str, str] = _tool("table_jars").DELTA_SETTINGS if "delta" in table_formats() else {}
    return found


def _tool(name: str) -> Any:
    source = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert source is not None
    assert source.loader is not None
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module
