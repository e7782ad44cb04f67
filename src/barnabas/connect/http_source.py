"""Polls an HTTP endpoint for what is new. An answer is in the checkpoint before its rows go anywhere."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from barnabas.connect.connector import Json, PolledSource, Step, connector
from barnabas.connect.exchange import Exchange
from barnabas.connect.option import ConnectError, option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@connector("http")
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSource(PolledSource):
    """Objects of a JSON endpoint, those that are new at each look."""

    url: str = option("Where to ask, with GET.", example="https://example.com/orders")
    schema: str = option("Names and types of the objects' fields.", example="id long, name string")
    items: str = option(
        "Where in the answer the list of objects is, such as `data.orders`; it is the list if empty.", ""
    )
    param: str = option(
        "The query parameter that carries the position: `since` makes ?since=POSITION.", example="since"
    )
    field: str = option("The field of the objects whose greatest value is the next position.", "")
    cursor: str = option("Where in the answer the next position is, such as `next`; instead of field.", "")
    start: str = option("The first position; at first the parameter is left out if empty.", "")
    headers: Mapping[str, str] = option("Headers of each request.", {})
    timeout_seconds: float = option("How long one answer may take.", 30.0, least=0.1)
    retries: int = option("How often a request that failed is tried again.", 5, least=0)

    def check(self) -> None:
        if bool(self.field) == bool(self.cursor):
            raise ConnectError("The HTTP source needs either field or cursor, to know where it stands.")
        self._exchange().check()

    def guarantee(self) -> str:
        return "each answer once"

    def plan(self, spark: "SparkSession", position: Json) -> Step | None:
        asked = position if position is not None else (self.start or None)
        answer = self._answer(asked)
        found = _at(answer, self.items)
        if not isinstance(found, list):
            where = f"at {self.items} in the answer of" if self.items else "the answer of"
            raise ConnectError(f"There is no list of objects {where} {self.url}.")
        if not found:
            return None
        following = self._position(answer, found, asked)
        if following == asked:
            # The same question would bring the same answer for ever.
            return None
        lines = [json.dumps(each, separators=(",", ":")) for each in found]
        return Step({"lines": lines, "rows": len(lines)}, following)

    def read(self, spark: "SparkSession", plan: Json, bad: str) -> "DataFrame":
        from barnabas.streams import Stream

        lines = spark.createDataFrame([(line,) for line in plan["lines"]], "value string")
        return Stream.of(lines).json(self.schema, bad=bad).dataframe

    def _exchange(self) -> Exchange:
        return Exchange(self.url, self.headers, self.timeout_seconds, self.retries)

    def _answer(self, position: Json) -> Any:
        parts = urlsplit(self.url)
        added = urlencode({self.param: position}) if position is not None else ""
        query = "&".join(filter(None, [parts.query, added]))
        url = urlunsplit(parts._replace(query=query))
        body = self._exchange().ask("GET", url, headers={"Accept": "application/json"})
        try:
            return json.loads(body)
        except ValueError as error:
            raise ConnectError(f"{url} does not answer with JSON: {error}.") from error

    def _position(self, answer: Any, found: list[Any], asked: Json) -> Json:
        if self.cursor:
            following = _at(answer, self.cursor)
            return asked if following is None else following
        fields: list[Any] = [each.get(self.field) for each in found if isinstance(each, dict)]
        values = [value for value in fields if value is not None]
        if not values:
            raise ConnectError(f"No object that {self.url} gives has the field {self.field}.")
        try:
            return max(values)
        except TypeError:
            raise ConnectError(f"The values of {self.field} at {self.url} cannot be compared.") from None


def _at(answer: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        answer = answer.get(name) if isinstance(answer, dict) else None
    return answer
