"""Owns JDBC drivers: which class and jar a database needs, where the jar is, and making Spark use it.

Used by the JDBC source and sink. A jar is fetched from Maven Central once, into a cache of the user's own.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from barnabas.connect.option import ConnectError, no_such

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FETCH_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Driver:
    """What a database needs."""

    java_class: str
    artifact: str
    """group:name:version in Maven Central."""
    default_port: int | None
    upserts: bool
    """Whether we know how it writes INSERT ... ON CONFLICT."""
    bytes_type: str = "BLOB"
    time_type: str = "TIMESTAMP"
    quote: str = '"'
    one_writer: bool = False
    """Whether only one connection may write at a time."""

    def quoted(self, name: str) -> str:
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    @property
    def jar_name(self) -> str:
        _, name, version = self.artifact.split(":")
        return f"{name}-{version}.jar"


DRIVERS = {
    "sqlite": Driver(
        "org.sqlite.JDBC",
        "org.xerial:sqlite-jdbc:3.47.1.0",
        None,
        upserts=True,
        quote="`",  # SQLite takes "nr" for a text where there is no column nr
        one_writer=True,
    ),
    "postgresql": Driver(
        "org.postgresql.Driver",
        "org.postgresql:postgresql:42.7.4",
        5432,
        upserts=True,
        bytes_type="BYTEA",
        time_type="TIMESTAMP WITH TIME ZONE",
    ),
}


def driver_of(url: str, java_class: str = "", jar: str = "") -> Driver:
    """The driver for a JDBC address."""
    parts = url.split(":")
    if parts[0] != "jdbc" or len(parts) < 3:
        raise ConnectError(
            f"{url!r} is no JDBC address: write jdbc:sqlite:FILE or jdbc:postgresql://HOST/NAME."
        )
    known = DRIVERS.get(parts[1])
    if java_class:
        return Driver(java_class, "", known.default_port if known else None, bool(known and known.upserts))
    if known is None:
        raise ConnectError(
            f"{url}: {no_such('database', parts[1], list(DRIVERS))} For another one give driver and jar."
        )
    return known


def address_of(url: str, driver: Driver) -> tuple[str, int] | None:
    """Host and port behind a JDBC address; None where it is a file."""
    parts = urlsplit(url.removeprefix("jdbc:"))
    if not parts.netloc or driver.default_port is None:
        return None
    return parts.hostname or "localhost", parts.port or driver.default_port


def find_jar(driver: Driver, given: str = "") -> Path:
    """The driver's jar on this machine; fetched if need be."""
    if given:
        if not Path(given).is_file():
            raise ConnectError(f"There is no jar {given}.")
        return Path(given)
    if not driver.artifact:
        raise ConnectError(f"The driver {driver.java_class} needs jar: the path of its jar.")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas" / "jars"
    jar = cache / driver.jar_name
    if not jar.exists():
        _fetch(driver, cache)
    return jar


def _fetch(driver: Driver, cache: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConnectError(
            f"The JDBC driver {driver.artifact} is fetched with Maven, and there is no `mvn`: install it, or "
            f"download {driver.jar_name} and say where it is with jar."
        )
    cache.mkdir(parents=True, exist_ok=True)
    # Fetched beside and renamed: two runs at once never see half a jar.
    beside = cache / f"fetch-{os.getpid()}"
    command = [
        maven,
        "-q",
        "-B",
        "dependency:copy",
        f"-Dartifact={driver.artifact}",
        f"-DoutputDirectory={beside}",
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=cache,
        )
        fetched = beside / driver.jar_name
        if done.returncode or not fetched.exists():
            said = next(
                (line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line), "it gave none"
            )
            raise ConnectError(f"Maven could not fetch {driver.artifact}: {said}.")
        fetched.rename(cache / driver.jar_name)
    except subprocess.TimeoutExpired as late:
        raise ConnectError(f"Maven did not fetch {driver.artifact} within {_FETCH_TIMEOUT_S} s.") from late
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def load_driver(spark: "SparkSession", driver: Driver, jar: str) -> None:
    """Makes a driver known to Spark, and to the thread that asks: Java looks for classes through its thread."""
    thread = spark._jvm.java.lang.Thread.currentThread()
    loader = spark._jsparkSession.sharedState().jarClassLoader()
    thread.setContextClassLoader(loader)
    if not _has_class(spark, driver.java_class):
        spark.sql(f"ADD JAR '{find_jar(driver, jar)}'")
        thread.setContextClassLoader(loader)
        if not _has_class(spark, driver.java_class):
            raise ConnectError(f"{find_jar(driver, jar)} has no driver {driver.java_class}.")


def connect(spark: "SparkSession", driver: Driver, url: str, properties: dict[str, str]) -> Any:
    """A java.sql.Connection of the driver's process."""
    registry = spark._jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
    registry.register(driver.java_class)
    wanted = spark._jvm.java.util.Properties()
    for name, value in properties.items():
        wanted.setProperty(name, value)
    return registry.get(driver.java_class).connect(url, wanted)


def _has_class(spark: "SparkSession", java_class: str) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(java_class)
    except Py4JJavaError:
        return False
    return True
