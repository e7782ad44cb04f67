"""Owns a producer that writes numbers for as long as it is told to, and remembers what was acknowledged.

Called by the chaos tests. It is idempotent, asks for acks=all, and outlives the broker: each number is
written to one partition, in order, and must be found there once.
"""

import threading
from typing import Any, Self

from confluent_kafka import Producer

from tests.deadline import Deadline

GIVE_UP_MS = 120_000
IN_FLIGHT = 2_000


class Load:
    """Writes 0, 1, 2, ... round robin over the partitions from a thread of its own, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, payload: int = 100) -> None:
        self._topic = topic
        self._partitions = partitions
        self._filler = b"." * payload
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.written = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """Number -> partition, offset."""
        self.failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 200,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "message.timeout.ms": GIVE_UP_MS,
                "error_cb": self._on_error,
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def finish(self, within_s: float) -> None:
        """Stops writing and waits until everything written is answered."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(within_s)
        assert left == 0, f"{left} records were not answered"
        assert not self.failures, self.failures[:5]

    def wait_for_acknowledged(self, more: int, within_s: float) -> None:
        """Waits until this many more records than now are acknowledged."""
        wanted = len(self.acknowledged) + more
        deadline = Deadline(within_s, f"{wanted} acknowledged records; failures: {self.failures[:3]}")
        with self._moved:
            while len(self.acknowledged) < wanted:
                self._moved.wait(deadline.left(1.0))

    def _run(self) -> None:
        while not self._stopping.is_set():
            if len(self._producer) >= IN_FLIGHT:
                self._producer.poll(0.02)
                continue
            number = self.written
            self._producer.produce(
                self._topic,
                b"%d" % number + self._filler,
                b"%d" % number,
                number % self._partitions,
                on_delivery=lambda error, message, number=number: self._answered(number, error, message),
            )
            self.written += 1
            if number % 50 == 0:
                self._producer.poll(0)

    def _answered(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(f"record {number}: {error}")
            return
        with self._moved:
            self.acknowledged[number] = (message.partition(), message.offset())
            self._moved.notify_all()

    def _on_error(self, error: Any) -> None:
        # A lost connection is what these tests are made of; only an error that ends the producer counts.
        if error.fatal():
            self.failures.append(f"fatal: {error}")
