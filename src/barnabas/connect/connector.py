"""What a source and a sink are, and the table of all connectors. Each connector registers beside its class.

A source either is a stream of Spark's own, or is polled: it plans a step from the position it had, and reads the
step, which must give the same rows when it is read again. A sink writes a batch; a batch that comes again after a
crash has the same id, and a sink that can recognises it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from barnabas.connect.option import ConnectError, no_such

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.streams import Stream

Json: TypeAlias = Any

BAD = "_bad_row"
"""The column with the text of a row that does not fit its schema; null in good rows."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Which batch this is: `origin` is made with the checkpoint, so that a new one never passes for an old one."""

    origin: str
    number: int

    def __str__(self) -> str:
        return f"{self.origin}-{self.number:08}"


class Connector(ABC):
    """What sources and sinks share."""

    name: ClassVar[str]

    def check(self) -> None:  # noqa: B027
        """Raises a ConnectError if what it talks to is not there. Takes seconds at most, and needs no Spark."""

    def guarantee(self) -> str:
        """What holds after a crash, in a few words."""
        return ""


class Source(Connector):
    """Where rows come from."""


class StreamSource(Source):
    """A source that Spark itself can stream: positions are in Spark's checkpoint."""

    @abstractmethod
    def stream(self, spark: "SparkSession", bad: str) -> "Stream":
        """The rows; those that do not fit the schema make the query fail, or have their text in the column `bad`."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a polled source will read next: enough to read it again, and where it stands after that."""

    plan: Json
    position: Json


class PolledSource(Source):
    """A source that is asked again and again for what is new."""

    @abstractmethod
    def plan(self, spark: "SparkSession", position: Json) -> Step | None:
        """What there is behind a position (None: from the beginning); None if there is nothing new."""

    @abstractmethod
    def read(self, spark: "SparkSession", plan: Json, bad: str) -> "DataFrame":
        """The rows of a planned step; every time the same."""


class Sink(Connector):
    """Where rows go."""

    @abstractmethod
    def write(self, frame: "DataFrame", batch: Batch, *, keep_refused: bool = False) -> "DataFrame | None":
        """Writes all rows of a batch, or raises. A sink that may be refused single rows gives those back, as
        columns value and reason, where `keep_refused` says that they are wanted."""


C = TypeVar("C", bound=Connector)

_MODULES = ("files", "topics", "jdbc_source", "jdbc_sink", "http_source", "http_sink", "delta")
_sources: dict[str, type[Source]] = {}
_sinks: dict[str, type[Sink]] = {}


def connector(name: str) -> Callable[[type[C]], type[C]]:
    """Registers a source or a sink under the name that files declare it by."""

    def register(made: type[C]) -> type[C]:
        made.name = name
        if issubclass(made, Source):
            _sources[name] = made
        elif issubclass(made, Sink):
            _sinks[name] = made
        return made

    return register


def sources() -> Mapping[str, type[Source]]:
    _load()
    return dict(sorted(_sources.items()))


def sinks() -> Mapping[str, type[Sink]]:
    _load()
    return dict(sorted(_sinks.items()))


def source_named(name: str, where: str) -> type[Source]:
    if name not in sources():
        raise ConnectError(f"{where}: {no_such('source', name, list(sources()))}")
    return sources()[name]


def sink_named(name: str, where: str) -> type[Sink]:
    if name not in sinks():
        raise ConnectError(f"{where}: {no_such('sink', name, list(sinks()))}")
    return sinks()[name]


def _load() -> None:
    for module in _MODULES:
        import_module(f"barnabas.connect.{module}")
