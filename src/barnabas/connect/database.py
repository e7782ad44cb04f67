"""Owns how a database is reached: address, credentials and driver, declared once for the JDBC source and sink.

Always holds: a database that is not there is told within seconds, not after the driver's own minutes.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.connect import drivers
from barnabas.connect.option import ConnectError, option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database behind a JDBC address."""

    url: str = option("Where the database is.", example="jdbc:postgresql://localhost/shop")
    user: str = option("The user to log in as.", "")
    password: str = option("Its password; `${NAME}` takes it from the environment.", "")
    driver: str = option("The driver's Java class; known for SQLite and PostgreSQL.", "")
    jar: str = option("The driver's jar; fetched with Maven for SQLite and PostgreSQL.", "")

    def check(self) -> None:
        address = drivers.address_of(self.url, self._driver())
        if address is not None:
            try:
                socket.create_connection(address, _CONNECT_TIMEOUT_S).close()
            except OSError as error:
                raise ConnectError(
                    f"No database answers at {address[0]}:{address[1]} ({error.strerror or error})."
                ) from error
        elif self.url.startswith("jdbc:sqlite:"):
            self._check_file(Path(self.url.removeprefix("jdbc:sqlite:").partition("?")[0]))

    def _check_file(self, file: Path) -> None:
        if not file.parent.is_dir():
            raise ConnectError(f"There is no folder {file.parent} for the database {file.name}.")

    def _driver(self) -> drivers.Driver:
        return drivers.driver_of(self.url, self.driver, self.jar)

    def _credentials(self) -> dict[str, str]:
        pairs = {"user": self.user, "password": self.password}
        return {name: value for name, value in pairs.items() if value}

    def _options(self) -> dict[str, str]:
        """What Spark's JDBC format wants to know."""
        return {"url": self.url, "driver": self._driver().java_class, **self._credentials()}

    def _load(self, spark: "SparkSession") -> None:
        drivers.load_driver(spark, self._driver(), self.jar)

    @contextmanager
    def _connection(self, spark: "SparkSession") -> Iterator[Any]:
        connection = drivers.connect(spark, self._driver(), self.url, self._credentials())
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def told_plainly(what: str) -> Iterator[None]:
    """What Java says of a database, as one sentence."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from barnabas.spark.sentences import sentence_of

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise ConnectError(f"{what}: {sentence_of(error)}.") from error
