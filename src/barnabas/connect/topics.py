"""Topics of a broker as sources and sinks, through the data source `barnabas`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.connect.connector import Batch, Sink, StreamSource, connector
from barnabas.connect.option import ConnectError, option
from barnabas.errors import BarnabasError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.streams import Stream

_CHECK_TIMEOUT_MS = 5_000


@connector("topic")
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource(StreamSource):
    """Records of topics."""

    topic: tuple[str, ...] = option("The topic, or a list of them.", example="orders")
    bootstrap: str = option("The broker; the file's bootstrap if not given.", "localhost:9092")
    schema: str = option("Names and types of the fields of JSON values; without it values are text.", "")
    keep: tuple[str, ...] = option(
        "With a schema: which of key, topic, partition, offset, timestamp become columns too.", ()
    )
    starting: str = option("Where to begin without a checkpoint.", "earliest", among=("earliest", "latest"))
    max_records: int = option("How many records a batch takes at most; 0 has no limit.", 0, least=0)

    def check(self) -> None:
        there = _topics(self.bootstrap)
        for name in self.topic:
            if name not in there:
                raise ConnectError(f"There is no topic {name} at {self.bootstrap}.")

    def guarantee(self) -> str:
        return "each record once"

    def stream(self, spark: "SparkSession", bad: str) -> "Stream":
        from pyspark.sql import functions

        from barnabas.streams import Stream
        from barnabas.streams.refusals import schema_of

        options = {"maxOffsetsPerTrigger": str(self.max_records)} if self.max_records else {}
        records = Stream.from_topic(
            spark, self.topic, bootstrap=self.bootstrap, starting=self.starting, options=options
        )
        text = {name: functions.col(name).cast("string") for name in ("key", "value")}
        if not self.schema:
            return records.map(**text)
        wanted = [*self.keep, *schema_of(self.schema).fieldNames()]
        rows = records.map(key=text["key"]).json(self.schema, bad=bad)
        return rows.select(*wanted, *(name for name in rows.dataframe.columns if name == bad))


@connector("topic")
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink(Sink):
    """Records of a topic: a column as the key, all columns as JSON for the value, if not told otherwise."""

    topic: str = option("The topic; it has to exist, or the broker has to create it.", example="orders")
    bootstrap: str = option("The broker; the file's bootstrap if not given.", "localhost:9092")
    key: tuple[str, ...] = option("Columns that make the key: the text of one, the JSON of several.", ())
    value: str = option("The column that is the value, as it is; all columns as JSON if not given.", "")

    def check(self) -> None:
        _topics(self.bootstrap)

    def guarantee(self) -> str:
        return "at least once"

    def write(self, frame: "DataFrame", batch: Batch, *, keep_refused: bool = False) -> None:
        from barnabas.streams import Stream

        rows = Stream.of(frame).key_by(*self.key)
        rows.to_topic(self.topic, bootstrap=self.bootstrap, value=self.value or None).run()


def _topics(bootstrap: str) -> set[str]:
    from barnabas.client.admin.admin import Admin

    try:
        with Admin(bootstrap, client_id="barnabas-connect", request_timeout_ms=_CHECK_TIMEOUT_MS) as admin:
            return set(admin.list_topics())
    except BarnabasError as error:
        raise ConnectError(str(error)) from error
