"""Sends a stream to a topic: as fast as it goes, or at a given rate.

Called by `barnabas generate` and the demo. Always holds: a paced row never leaves before it is due, and what
is due leaves together, so that a high rate costs no more calls than a low one.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import Any

from barnabas.client.producer.producer import Producer
from barnabas.client.producer.sent_table import SentTable

_BEAT_S = 0.05
_AHEAD = 3
"""Tables that are made and encoded while others are on their way."""


def paced(chunks: Iterable[Any], rate: float, *, stop: Event | None = None) -> Iterator[Any]:
    """The same rows in slices, each when its rows are due; ends early when `stop` is set."""
    stop = stop or Event()
    began, sent = time.monotonic(), 0
    for chunk in chunks:
        at = 0
        while at < chunk.num_rows:
            due = int((time.monotonic() - began) * rate) + 1 - sent
            if due <= 0:
                # The next row's own moment, but not more than twenty wake-ups a second for many rows.
                next_row_s = began + sent / rate - time.monotonic()
                if stop.wait(max(next_row_s, _BEAT_S)):
                    return
                continue
            slice_ = chunk.slice(at, due)
            at += slice_.num_rows
            sent += slice_.num_rows
            yield slice_
            if stop.is_set():
                return


def send(producer: Producer, topic: str, chunks: Iterable[Any], sent: Callable[[int], None]) -> int:
    """Send tables of key, value and timestamp; tells `sent` how many rows are there. Gives their number."""
    count = 0
    on_the_way: deque[tuple[SentTable, int]] = deque()

    def settle(leave: int) -> None:
        nonlocal count
        while len(on_the_way) > leave:
            table, rows = on_the_way.popleft()
            table.result()
            count += rows
            sent(rows)

    for chunk in chunks:
        table = producer.send_table(topic, chunk, key="key", timestamp="timestamp")
        on_the_way.append((table, chunk.num_rows))
        settle(_AHEAD)
    settle(0)
    return count
