r"""`generate logs`: what nginx writes on many hosts, in its combined format; the key is the host.

    web-07    10.3.201.44 - - [31/Jan/2026:12:00:00 +0000] "GET /products/17 HTTP/1.1" 200 5123 "-" "Mozilla/5.0 ..."

Some lines are broken as lines in the field are: cut in the middle, a stack trace between them, bytes that are
no text, nothing at all. Status 5xx comes in bad minutes of single hosts, not evenly.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.generate.columns import joined, nginx_moments, table
from barnabas.generate.dice import Dice, falling, words_of
from barnabas.generate.stream import Clock, Stream

HOSTS = [f"web-{number:02}" for number in range(1, 41)]
BAD_SHARE = 0.005

_PATHS = ["/", "/search", "/cart", "/login", "/checkout", "/health", "/static/app.js", "/static/style.css"]
_PATHS += [f"/products/{number}" for number in range(1, 201)] + [f"/blog/{number}" for number in range(1, 31)]
_METHODS = ["GET", "POST", "HEAD", "PUT"]
_STATUS = ["200", "304", "301", "404", "403", "400", "499"]
_STATUS_WEIGHTS = [0.86, 0.06, 0.03, 0.03, 0.005, 0.005, 0.01]
_FAILED = ["500", "502", "503", "504"]
_USERS = ["-", "anna", "bilal", "chen", "dara", "emeka"]
_REFERRERS = ["-", "https://example.com/", "https://search.example/?q=lamp", "https://news.example/today"]
_AGENTS = [
    "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 Safari/605.1.15",
    "Mozilla/5.0 (Linux; Android 15) Chrome/138.0 Mobile",
    "curl/8.14.1",
    "kube-probe/1.33",
    "examplebot/2.1 (+https://bot.example)",
]
_BAD = [
    b"",
    b"panic: runtime error: index out of range [3] with length 3",
    b"    at app.handlers.checkout(checkout.js:41:7)",
    b"\xff\xfe\x00\x16\x03\x01\x02\x00",
    b"- - [] ",
]


def _rows(seed: int, clock: Clock, first: int, count: int) -> Any:
    dice = Dice(seed, "logs")
    row = np.arange(first, first + count, dtype=np.int64)
    millis = np.asarray(clock.at(row), dtype=np.int64)
    host = dice.below(len(HOSTS), "host", row)
    client = dice.words("client", row)
    address = joined(
        "10.",
        *(part for shift in (0, 8) for part in ((client >> np.uint64(shift)) % np.uint64(256), ".")),
        (client >> np.uint64(16)) % np.uint64(254) + np.uint64(1),
    )
    line = joined(
        *(address, " - ", words_of(_USERS, dice.pick([30, 1, 1, 1, 1, 1], "user", row))),
        *(" [", nginx_moments(millis), '] "'),
        *(words_of(_METHODS, dice.pick([0.9, 0.08, 0.01, 0.01], "method", row)), " "),
        *(words_of(_PATHS, dice.pick(falling(len(_PATHS)), "path", row)), ' HTTP/1.1" '),
        *(_status(dice, row, host, millis), " "),
        *((np.exp(7.5 + dice.normal("size", row))).astype(np.int64), ' "'),
        *(words_of(_REFERRERS, dice.pick([6, 2, 1, 1], "referrer", row)), '" "'),
        *(words_of(_AGENTS, dice.pick([5, 3, 4, 1, 1, 1], "agent", row)), '"'),
    ).cast(pa.binary())
    return table(words_of(HOSTS, host), _with_bad_lines(dice, row, line), millis)


def _status(dice: Dice, row: Any, host: Any, millis: Any) -> Any:
    """A host has a bad minute now and then: every third request fails then, and one in a thousand otherwise."""
    minute = dice.chance("bad minute", host * 1_000_003 + millis // 60_000) < 0.01
    fails = dice.chance("fails", row) < np.where(minute, 0.33, 0.001)
    fine = words_of(_STATUS, dice.pick(_STATUS_WEIGHTS, "status", row))
    return pc.if_else(pa.array(fails), words_of(_FAILED, dice.below(len(_FAILED), "failure", row)), fine)


def _with_bad_lines(dice: Dice, row: Any, line: Any) -> Any:
    is_bad = dice.chance("bad", row) < BAD_SHARE
    places = row[is_bad]
    cut = [text[: len(text) // 2] for text in line.filter(pa.array(is_bad)).to_pylist()]
    kinds = dice.below(len(_BAD) + 2, "kind of bad", places).tolist()
    bad = [half if kind >= len(_BAD) else _BAD[kind] for kind, half in zip(kinds, cut, strict=True)]
    return pc.replace_with_mask(line, pa.array(is_bad), pa.array(bad, pa.binary()))


STREAM = Stream("logs", "logs", "nginx access lines from 40 hosts, some of them broken", 1000.0, _rows)
