"""Whatever nginx's combined format can write is a row of log-collection, and none of it a dead letter."""

from typing import Any

import pytest

from barnabas.pipelines.finding import find

pytestmark = pytest.mark.java

BEFORE, BEHIND = "10.0.0.1 - {user} [18/Nov/2026:10:00:00 +0000] ", ' {status} 150 "-" "curl/8.5"'
LONG = "\\x16" * 8000
"""A request line has 8 KiB at most, and every byte of it may be escaped."""


def line(request: str, status: int = 400, user: str = "-") -> str:
    return BEFORE.format(user=user) + f'"{request}"' + BEHIND.format(status=status)


REQUESTS = {
    "GET / HTTP/1.1": ("GET", "/", "HTTP/1.1", None),
    "GET /a b c HTTP/1.1": ("GET", "/a b c", "HTTP/1.1", None),
    "GET /a HTTP/1.1 HTTP/1.0": ("GET", "/a HTTP/1.1", "HTTP/1.0", None),
    "PRI * HTTP/2.0": ("PRI", "*", "HTTP/2.0", None),
    "GET /": ("GET", "/", None, None),
    "GET /\\x22quoted\\x22/\\xC3\\xA9\\x5C HTTP/1.1": ("GET", '/"quoted"/é\\', "HTTP/1.1", None),
    'GET /\\"apache\\" HTTP/1.1': ("GET", '/"apache"', "HTTP/1.1", None),
    "GET /latin/\\xE9 HTTP/1.1": ("GET", "/latin/\\xE9", "HTTP/1.1", None),
    "": (None, None, None, ""),
    "-": (None, None, None, "-"),
    "GET": (None, None, None, "GET"),
    "\\x16\\x03": (None, None, None, "\\x16\\x03"),
    "\\x16\\x03\\x01 / HTTP/1.1": (None, None, None, "\\x16\\x03\\x01 / HTTP/1.1"),
    "SSH-2.0-Go": (None, None, None, "SSH-2.0-Go"),
    LONG: (None, None, None, LONG),
}


def collected(spark: Any, lines: list[str]) -> tuple[list[Any], list[str]]:
    """The rows of these lines in their order, and the lines that are dead letters."""
    values = [(b"web-1", text.encode(), "logs", 0, at) for at, text in enumerate(lines)]
    schema = "key binary, value binary, topic string, partition int, offset long"
    found = find("log-collection")(spark.createDataFrame(values, schema))
    rows = found["lines"].orderBy("offset").collect()
    return rows, [bytes(row.value).decode() for row in found["bad"].collect()]


def test_each_request_is_parsed_or_kept_as_it_came(spark: Any) -> None:
    rows, dead = collected(spark, [line(request) for request in REQUESTS])
    assert dead == []
    assert [(row.method, row.path, row.protocol, row.request) for row in rows] == list(REQUESTS.values())
    assert {(row.address, row.user, row.status, row.bytes) for row in rows} == {("10.0.0.1", "-", 400, 150)}


def test_users_referrers_and_agents_may_be_anything(spark: Any) -> None:
    users = ["-", "john doe", "a [b] c", "\\x22x\\x22", ""]
    ends = {
        '200 5 "https://a/?q=\\x22b\\x22" "Mozilla (\\xE2\\x82\\xAC)"': ('https://a/?q="b"', "Mozilla (€)"),
        '200 5 "" ""': ("", ""),
        '200 5 "-" "a\\\\b\\tc"': ("-", "a\\b\tc"),
    }
    lines = [line("GET / HTTP/1.1", 200, user) for user in users]
    lines += [BEFORE.format(user="-") + f'"GET / HTTP/1.1" {end}' for end in ends]
    rows, dead = collected(spark, lines)
    assert dead == []
    assert [row.user for row in rows[: len(users)]] == ["-", "john doe", "a [b] c", '"x"', ""]
    assert [(row.referrer, row.agent) for row in rows[len(users) :]] == list(ends.values())


def test_other_lines_are_dead_letters(spark: Any) -> None:
    other = [
        "",
        "no access line",
        line("GET / HTTP/1.1") + ' "10.0.0.2"',
        line("GET / HTTP/1.1").replace("Nov", "Nox"),
    ]
    rows, dead = collected(spark, other)
    assert rows == []
    assert sorted(dead) == sorted(other)
