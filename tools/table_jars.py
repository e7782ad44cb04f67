"""Owns the jars of Delta Lake and Iceberg, and which of them fit which Spark. Called by the tests of both.

`python -m tools.table_jars [DIR]` fetches those for the PySpark that is installed beside this Python into DIR (default
`.cache/tables-VERSION`) with Maven and prints the folder.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from tools import maven
from tools.maven import CACHE, Artifact

# As of November 2026. Iceberg has no release for Spark 4.2, and neither has one for 4.3: docs/PIPELINES.md.
FITTING: dict[str, dict[str, Artifact]] = {
    "4.1": {
        "delta": ("io.delta", "delta-spark_4.1_2.13", "4.4.0"),
        "iceberg": ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),
    },
    "4.2": {
        "delta": ("io.delta", "delta-spark_4.2_2.13", "4.4.0"),
    },
}
GROUPS = "io.delta,io.unitycatalog,org.apache.iceberg"
"""The rest of what they need comes with PySpark."""

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def spark_version() -> str:
    """The installed PySpark's, as in 4.1."""
    return ".".join(version("pyspark").split(".")[:2])


def fitting() -> dict[str, Artifact]:
    """The table formats that there are for the installed PySpark."""
    return FITTING.get(spark_version(), {})


def jars(directory: Path | None = None) -> list[Path]:
    """The jars of all of them, fetched once."""
    return sorted(_folder(directory).glob("*.jar")) if fitting() else []


def _folder(directory: Path | None) -> Path:
    if not fitting():
        raise maven.NoJarsError(f"Neither Delta Lake nor Iceberg has a release for PySpark {spark_version()}")
    target = directory or CACHE / f"tables-{spark_version()}"
    options = ("-DincludeScope=runtime", f"-DincludeGroupIds={GROUPS}")
    maven.provide(target, fitting().values(), *options, what="The jars of Delta Lake and Iceberg")
    return target


if __name__ == "__main__":
    raise SystemExit(maven.main(_folder))
