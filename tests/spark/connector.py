"""Owns where the tests find jars for Spark: its own Kafka connector, and the table formats that fit it."""

from tools import table_jars as tables


def table_formats() -> set[str]:
    """Of Delta and Iceberg, those that have a release for the installed PySpark."""
    return set(tables.fitting())


def table_settings() -> dict[str, str]:
    """What a session must be told for the table formats that it has."""
    return tables.DELTA_SETTINGS if "delta" in table_formats() else {}
