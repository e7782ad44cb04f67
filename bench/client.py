"""The neutral client: librdkafka through confluent-kafka, in a process of its own so that its CPU can be
told apart.

Started by bench.librdkafka as `python -m bench.client JSON`. It gets all it needs ready, prints "ready",
waits for a line on stdin, does the measured work, and prints one line of JSON: what it did, how long it
took, what it cost itself. Both brokers get the same settings; those not named here are librdkafka's
defaults.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from bench.processes import cost

CHUNK = 500
CHUNKS_READY = 16
WORDS = (
    "level",
    "info",
    "user",
    "order",
    "path",
    "/api/v1",
    "status",
    "200",
    "took",
    "ms",
    "item",
    "true",
    "null",
)
LIMIT_S = 60.0
Job = dict[str, Any]


class ClientFailedError(Exception):
    """What was sent did not arrive, or not in time."""


def produce(job: Job) -> dict[str, float]:
    """Hands `records` values to librdkafka as fast as it takes them, until all are acknowledged."""
    refused: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "compression.type": job["codec"],
            "acks": "all",
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
            # Only failures come back to Python: one callback a record would measure Python.
            "delivery.report.only.error": True,
            "on_delivery": delivered,
        }
    )
    producer.list_topics(job["topic"], timeout=30)
    chunks = _chunks(job["record_bytes"], job["partitions"])
    wait_for_go()
    begun, before = time.monotonic(), cost(os.getpid())
    left, turn = job["records"], 0
    while left > 0:
        chunk = chunks[turn % CHUNKS_READY]
        turn += 1
        if left < CHUNK:
            chunk = chunk[:left]
        left -= _hand_over(producer, job["topic"], chunk, begun)
    if producer.flush(LIMIT_S) or refused:
        raise ClientFailedError(f"not all records were acknowledged: {refused[:1]}")
    return measured(job["records"] * job["record_bytes"], begun, before)


def _hand_over(producer: Producer, topic: str, chunk: list[dict[str, Any]], begun: float) -> int:
    """How many of the chunk librdkafka took; waits for room first when it took none."""
    try:
        taken: int = producer.produce_batch(topic, chunk)
    except BufferError:
        taken = 0
    if taken < len(chunk):
        producer.poll(0.002)
        if time.monotonic() - begun > LIMIT_S:
            raise ClientFailedError("the records did not go out in time")
    return taken


def _chunks(record_bytes: int, partitions: int) -> list[list[dict[str, Any]]]:
    """Lists of records made beforehand: text that lz4 halves roughly, records going round the partitions."""
    chance = random.Random(7)
    number, chunks = 0, []
    for _ in range(CHUNKS_READY):
        chunk = []
        for _ in range(CHUNK):
            text = bytearray()
            while len(text) < record_bytes:
                text += f'"{chance.choice(WORDS)}": "{chance.getrandbits(40):x}", '.encode()
            chunk.append({"value": bytes(text[:record_bytes]), "partition": number % partitions})
            number += 1
        chunks.append(chunk)
    return chunks


def consume(job: Job) -> dict[str, float]:
    """Reads `records` records from the partitions' beginning, or from `offset`, as fast as they come."""
    offset = job.get("offset", OFFSET_BEGINNING)
    consumer = _consumer(job)
    consumer.list_topics(job["topic"], timeout=30)
    wait_for_go()
    begun, before = time.monotonic(), cost(os.getpid())
    consumer.assign([TopicPartition(job["topic"], p, offset) for p in range(job["partitions"])])
    left, read_bytes = job["records"], 0
    while left > 0:
        messages = consumer.consume(min(left, 5000), timeout=5.0)
        if time.monotonic() - begun > LIMIT_S:
            raise ClientFailedError(f"{left} records did not come in time")
        left -= len(messages)
        # An error event comes as a message too, of another length; looking at each would measure Python.
        read_bytes += sum(map(len, messages))
    result = measured(read_bytes, begun, before)
    consumer.close()
    if read_bytes != job["records"] * job["record_bytes"]:
        raise ClientFailedError(f"read {read_bytes} bytes in {job['records']} records: not what was sent")
    return result


def latency(job: Job) -> dict[str, float]:
    """Sends `rate` records a second for `seconds`; each carries its time, read by a second thread."""
    topic, partitions, total = job["topic"], job["partitions"], int(job["rate"] * job["seconds"])
    warm = int(job["rate"] * job["warm_up_s"])
    consumer = _consumer(job)
    # From the end as it is now: a topic that was measured before holds older records.
    ends = [
        TopicPartition(topic, p, consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1])
        for p in range(partitions)
    ]
    consumer.assign(ends)
    producer = Producer({"bootstrap.servers": job["bootstrap"], "linger.ms": 0, "acks": "all"})
    producer.list_topics(topic, timeout=30)
    took: list[int] = []
    reader = threading.Thread(target=_read_latencies, args=(consumer, warm + total, took), daemon=True)
    wait_for_go()
    begun, before = time.monotonic(), cost(os.getpid())
    reader.start()
    filler = b"x" * (job["record_bytes"] - 8)
    for number in range(warm + total):
        due = begun + number / job["rate"]
        pause = due - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        producer.produce(
            topic, time.monotonic_ns().to_bytes(8, "big") + filler, partition=number % partitions
        )
        producer.poll(0)
    producer.flush(LIMIT_S)
    reader.join(LIMIT_S)
    if len(took) < warm + total:
        raise ClientFailedError(f"{warm + total - len(took)} records did not come in time")
    sorted_ns = sorted(took[warm:])
    result = measured(total * job["record_bytes"], begun, before)
    return result | {
        "p50_ns": sorted_ns[len(sorted_ns) // 2],
        "p99_ns": sorted_ns[len(sorted_ns) * 99 // 100],
    }


def _read_latencies(consumer: Consumer, wanted: int, took: list[int]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while len(took) < wanted and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            took.append(time.monotonic_ns() - int.from_bytes(message.value()[:8], "big"))


def _consumer(job: Job) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "group.id": "bench",
            "enable.auto.commit": False,
            # Never full: librdkafka stops fetching for up to 1 s then, and that would be measured.
            "queued.min.messages": 10_000_000,
            "queued.max.messages.kbytes": 2_000_000,
        }
    )


def wait_for_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def measured(payload_bytes: int, begun: float, before: Any) -> dict[str, float]:
    seconds = time.monotonic() - begun
    spent = cost(os.getpid()).since(before)
    return {
        "bytes": payload_bytes,
        "seconds": seconds,
        "cpu_s": spent.cpu_s,
        "busiest_thread_s": spent.busiest_thread_s,
    }


def main() -> None:
    job = json.loads(sys.argv[1])
    work = {"produce": produce, "consume": consume, "latency": latency}[job["do"]]
    try:
        print(json.dumps(work(job)), flush=True)
    except ClientFailedError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
