"""Writes without a pause while a broker ends, and measures the longest time without an acknowledgement.

`run` is called by the workload cluster; it starts this file as a process: `python -m bench.outage JSON`. That process
writes with librdkafka, one record each few milliseconds, acks=all, prints "ready" when records are acknowledged, and
goes on until its stdin is closed and what was sent then is acknowledged. librdkafka waits as it does by default.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

ROOT = Path(__file__).resolve().parent.parent
EVERY_S = 0.005
STEADY_S = 1.0
AFTER_S = 1.0
LIMIT_S = 90.0


class OutageFailedError(RuntimeError):
    """Records were not acknowledged in time, or not at all."""


def run(bootstrap: str, topic: str, strike: Callable[[], None]) -> float:
    """Seconds without an acknowledgement around `strike`, which is called amid steady writing."""
    order = json.dumps({"bootstrap": bootstrap, "topic": topic})
    process = subprocess.Popen(
        (sys.executable, "-m", "bench.outage", order),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(LIMIT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if ready:
            strike()
        # The end of its input asks for the result.
        said, complaint = process.communicate()
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
    if not said:
        raise OutageFailedError(f"writing to {topic} failed: {complaint.strip()[-300:]}")
    return float(json.loads(said)["silence_s"])


class Writing:
    """Mutable: when acknowledgements came."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "message.timeout.ms": 60_000}
        )
        self.heard = 0.0
        self.longest_s = 0.0
        self.failures: list[str] = []

    def go_on(self, until: Callable[[], bool]) -> None:
        """Write one record after the other until it is time to stop."""
        deadline = time.monotonic() + LIMIT_S
        while not until():
            if self.failures or time.monotonic() > deadline:
                raise OutageFailedError(f"no acknowledgement: {self.failures[:1]}")
            self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=self._delivered)
            self._producer.poll(EVERY_S)

    def finish(self) -> None:
        if self._producer.flush(LIMIT_S) or self.failures:
            raise OutageFailedError(f"not all records were acknowledged: {self.failures[:1]}")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        now = time.monotonic()
        if error is not None:
            self.failures.append(str(error))
        elif self.heard:
            self.longest_s = max(self.longest_s, now - self.heard)
        self.heard = now


def main() -> None:
    job = json.loads(sys.argv[1])
    writing = Writing(job["bootstrap"], job["topic"])
    begun = time.monotonic()
    writing.go_on(lambda: writing.heard > begun + STEADY_S)
    writing.longest_s = 0.0
    print("ready", flush=True)
    writing.go_on(lambda: bool(select.select([sys.stdin], [], [], 0)[0]))
    # A broker that was killed is missed only after a while: go on until acknowledgements have come for some time.
    struck = time.monotonic()
    writing.go_on(lambda: writing.heard > struck + AFTER_S)
    writing.finish()
    print(json.dumps({"silence_s": writing.longest_s}), flush=True)


if __name__ == "__main__":
    main()
