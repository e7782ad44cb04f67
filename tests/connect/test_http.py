"""HTTP with a real server: polled by position, posted with retries, refusals to the dead letters."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from barnabas.connect.connector import Batch
from barnabas.connect.exchange import Exchange, HttpRefused
from barnabas.connect.http_sink import HttpSink
from barnabas.connect.http_source import HttpSource
from barnabas.connect.option import ConnectError
from tests.connect.conftest import RunFile


class Shop:
    """An endpoint that lists orders behind an id, and takes orders; it can be told to fail."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []
        self.taken: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.asked: list[str] = []
        self.failures: list[int] = []
        self._lock = threading.Lock()
        shop = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                since = int(parse_qs(urlsplit(self.path).query).get("since", ["0"])[0])
                page = [order for order in shop.orders if order["id"] > since][:3]
                self._answer(200, {"data": {"orders": page}, "next": page[-1]["id"] if page else None})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with shop._lock:
                    status = shop.failures.pop(0) if shop.failures else 200
                    if any(row.get("user") == "mallory" for row in body):
                        status = 422
                    if status == 200:
                        shop.taken += body
                        shop.keys.append(self.headers["Idempotency-Key"])
                self._answer(status, {"said": status})

            def _answer(self, status: int, answer: Any) -> None:
                shop.asked.append(self.path)
                self.send_response(status)
                if status == 429:
                    self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/orders"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def shop() -> Iterator[Shop]:
    running = Shop()
    yield running
    running.close()


def _no_pause(seconds: float) -> None:
    """Retries of these tests follow at once."""


def _exchange(url: str, retries: int) -> Exchange:
    return Exchange(url, {}, timeout_s=60.0, retries=retries)


def test_what_may_pass_is_tried_again_with_growing_pauses(shop: Shop) -> None:
    shop.failures = [503, 500, 429]
    pauses: list[float] = []
    answer = _exchange(shop.url, 3).ask("POST", shop.url, b"[]", pause=pauses.append)
    assert json.loads(answer) == {"said": 200}
    assert pauses == [0.2, 0.4, 0.0]  # the last as the server asked


def test_what_will_not_pass_is_refused_at_once(shop: Shop) -> None:
    shop.failures = [400]
    with pytest.raises(HttpRefused, match=r"was refused: 400 Bad Request: .*said"):
        _exchange(shop.url, 3).ask("POST", shop.url, b"[]", pause=_no_pause)
    assert len(shop.asked) == 1


def test_retries_have_an_end() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        with pytest.raises(ConnectError, match=r"was tried 3 times in vain: .*refused"):
            _exchange(url, 2).ask("GET", url, pause=_no_pause)
        began = time.monotonic()
        with pytest.raises(ConnectError, match=r"No server answers at 127\.0\.0\.1"):
            _exchange(url, 2).check()
        assert time.monotonic() - began < 15


def test_a_source_that_cannot_know_where_it_stands_is_refused() -> None:
    source = HttpSource(url="http://127.0.0.1/", schema="id long", param="since")
    with pytest.raises(ConnectError, match="either field or cursor"):
        source.check()


@pytest.mark.java
@pytest.mark.parametrize("position", ['field = "id"', 'cursor = "next"'])
def test_orders_are_polled_by_their_position(
    spark: Any, run_file: RunFile, shop: Shop, tmp_path: Path, position: str
) -> None:
    shop.orders = [{"id": number, "user": f"u{number}"} for number in range(1, 8)]
    text = f"""
        [source.orders]
        connector = "http"
        url = "{shop.url}"
        schema = "id long, user string"
        items = "data.orders"
        param = "since"
        {position}
        [sink.out]
        connector = "parquet"
        path = "{tmp_path}/out"
    """
    done = run_file(text)
    assert (done.told.batches, done.told.rows) == (3, 7)
    shop.orders.append({"id": 8, "user": "u8"})
    assert run_file(text).told.rows == 1
    assert sorted(row.id for row in spark.read.parquet(f"{tmp_path}/out").collect()) == list(range(1, 9))
    assert shop.asked[-1] == "/orders?since=8"


@pytest.mark.java
def test_rows_are_posted_and_refused_ones_become_dead_letters(
    spark: Any, run_file: RunFile, shop: Shop, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    lines = [{"id": number, "user": "mallory" if number == 5 else "ann"} for number in range(10)]
    (tmp_path / "in" / "1.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shop.failures = [503]
    text = f"""
        [source.lines]
        connector = "jsonlines"
        path = "{tmp_path}/in"
        schema = "id long, user string"
        [sink.shop]
        connector = "http"
        url = "{shop.url}"
        rows = 2
        [sink.letters]
        connector = "jsonlines"
        path = "{tmp_path}/letters"
        [flow.main]
        source = "lines"
        sinks = ["shop"]
        dead_letters = "letters"
    """
    run_file(text)
    assert sorted(row["id"] for row in shop.taken) == [0, 1, 2, 3, 6, 7, 8, 9]
    assert len(set(shop.keys)) == 4
    letters = spark.read.json(f"{tmp_path}/letters").collect()
    assert sorted(json.loads(letter.value)["id"] for letter in letters) == [4, 5]
    assert all("422" in letter.reason for letter in letters)


@pytest.mark.java
def test_without_dead_letters_a_refusal_ends_the_flow_in_a_sentence(spark: Any, shop: Shop) -> None:
    rows = spark.createDataFrame([("mallory",)], "user string")
    with pytest.raises(Exception, match="was refused: 422"):
        HttpSink(url=shop.url).write(rows, Batch("a", 0))
