"""Posts rows as JSON to an HTTP endpoint, from the executors, some at a time, with retries."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.connect.connector import Batch, Sink, connector
from barnabas.connect.exchange import Exchange, HttpRefused
from barnabas.connect.option import option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@connector("http")
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSink(Sink):
    """Requests with rows as JSON. Each has an Idempotency-Key that is the same when its batch comes again."""

    url: str = option("Where to send.", example="https://example.com/orders")
    method: str = option("How.", "POST", among=("POST", "PUT", "PATCH"))
    rows: int = option("How many rows a request has at most.", 100, least=1)
    body: str = option(
        "What a request has: a JSON array, or one object a line.", "array", among=("array", "lines")
    )
    headers: Mapping[str, str] = option("Headers of each request.", {})
    parallel: int = option("How many requests are under way at a time at most.", 1, least=1)
    timeout_seconds: float = option("How long one answer may take.", 30.0, least=0.1)
    retries: int = option("How often a request that failed is tried again.", 5, least=0)

    def check(self) -> None:
        self._exchange().check()

    def guarantee(self) -> str:
        return "at least once; exactly once where the server heeds Idempotency-Key"

    def write(self, frame: "DataFrame", batch: Batch, *, keep_refused: bool = False) -> "DataFrame | None":
        from pyspark.sql import functions

        columns = [functions.col(f"`{name}`") for name in frame.columns]
        lines = frame.select(functions.to_json(functions.struct(*columns)).alias("value")).coalesce(
            self.parallel
        )
        post = _poster(
            self._exchange(), self.method, self.rows, self.body == "lines", str(batch), keep_refused
        )
        refused = lines.mapInArrow(post, "value string, reason string").persist()
        if refused.count():
            return refused
        refused.unpersist()
        return None

    def _exchange(self) -> Exchange:
        return Exchange(self.url, self.headers, self.timeout_seconds, self.retries)


def _poster(
    exchange: Exchange, method: str, rows: int, as_lines: bool, batch: str, keep_refused: bool
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What an executor does with its part of a batch: sends it, and gives back what was refused."""
    content = "application/x-ndjson" if as_lines else "application/json"

    def post(parts: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        from barnabas.spark.worker import plainly

        part = TaskContext.get().partitionId()
        for number, lines in enumerate(_chunks(parts, rows)):
            body = "\n".join(lines) + "\n" if as_lines else f"[{','.join(lines)}]"
            headers = {"Content-Type": content, "Idempotency-Key": f"{batch}-{part}-{number}"}
            with plainly():
                try:
                    exchange.ask(method, exchange.url, body.encode(), headers)
                except HttpRefused as refusal:
                    if not keep_refused:
                        raise
                    reasons = [str(refusal)] * len(lines)
                    yield pa.RecordBatch.from_pydict({"value": lines, "reason": reasons})

    return post


def _chunks(parts: Iterator[Any], rows: int) -> Iterator[list[str]]:
    waiting: list[str] = []
    for part in parts:
        waiting += part.column("value").to_pylist()
        while len(waiting) >= rows:
            yield waiting[:rows]
            waiting = waiting[rows:]
    if waiting:
        yield waiting
