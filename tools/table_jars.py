"""Owns the jars of Delta Lake and Iceberg, and which of them fit which Spark. Called by the tests of both.

`python tools/table_jars.py [DIR]` fetches those for the PySpark that is installed beside this Python into DIR (default
`.cache/tables-VERSION`) with Maven and prints the folder. It is complete or not there at all: the jars are fetched
beside it, then renamed into place.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache"
FETCH_TIMEOUT_S = 300

Artifact = tuple[str, str, str]

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


class NoJarsError(Exception):
    """The jars are not there and cannot be fetched; the message says what to do."""


def spark_version() -> str:
    """The installed PySpark's, as in 4.1."""
    return ".".join(version("pyspark").split(".")[:2])


def fitting() -> dict[str, Artifact]:
    """The table formats that there are for the installed PySpark."""
    return FITTING.get(spark_version(), {})


def jars(directory: Path | None = None) -> list[Path]:
    """The jars of all of them, fetched once."""
    if not fitting():
        return []
    target = directory or CACHE / f"tables-{spark_version()}"
    if not _complete(target):
        maven = shutil.which("mvn")
        if maven is None:
            raise NoJarsError("The jars of Delta Lake and Iceberg come with Maven: install `mvn`")
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / f"{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _complete(target):
                _fetch(maven, target)
    return sorted(target.glob("*.jar"))


def _complete(directory: Path) -> bool:
    return all((directory / f"{name}-{number}.jar").exists() for _, name, number in fitting().values())


def _fetch(maven: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="tables-fetch-") as work:
        fetched, pom = Path(work) / "libs", Path(work) / "pom.xml"
        pom.write_text(_pom())
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DincludeGroupIds={GROUPS}"]
        try:
            done = subprocess.run(
                [maven, "-q", "-B", "-f", str(pom), *goal, f"-DoutputDirectory={fetched}"],
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as late:
            raise NoJarsError(f"Maven did not fetch the jars of tables within {FETCH_TIMEOUT_S} s") from late
        if done.returncode or not _complete(fetched):
            said = (done.stdout + done.stderr).strip().splitlines()
            raise NoJarsError("Maven could not fetch the jars of tables: " + " | ".join(said[:3]))
        if target.exists():
            shutil.rmtree(target)
        fetched.rename(target)


def _pom() -> str:
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{number}</version></dependency>"
        for group, name, number in fitting().values()
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>barnabas</groupId><artifactId>tables-beside-us</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{wanted}</dependencies></project>"
    )


def main() -> int:
    directory = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
    try:
        found = jars(directory)
    except NoJarsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"{folder}\n" for folder in {jar.parent for jar in found}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
