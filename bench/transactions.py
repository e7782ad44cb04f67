"""Commits transactions with librdkafka in a process of its own, or measures how soon a committed record is read.

`run` is called by the workloads of transactions; it starts this file as a process, as bench.librdkafka does with
bench.client: ready, go, one line of JSON. Both brokers get the same settings; those not named here are librdkafka's
defaults.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import librdkafka
from bench.client import LIMIT_S, ClientFailedError, Job, measured, wait_for_go
from bench.processes import cost
from bench.server import Server

RECORD = b"x" * 100
WARM_UP = 5
"""Transactions of each producer before anything is measured."""


def run(server: Server, do: str, **job: Any) -> librdkafka.Done:
    return librdkafka.run_program("bench.transactions", server, do, job)


def commits(job: Job) -> dict[str, float]:
    """Each of `producers` commits one transaction of `records` records after the other, for `seconds`."""
    producers = [_producer(job, number) for number in range(job["producers"])]
    counts = [0] * len(producers)
    failures: list[str] = []
    go, until = threading.Event(), [0.0]

    def work(number: int, producer: Producer) -> None:
        try:
            producer.init_transactions(LIMIT_S)
            for _ in range(WARM_UP):
                _commit(producer, job)
            warm.wait(LIMIT_S)
            go.wait(LIMIT_S)
            while time.monotonic() < until[0]:
                _commit(producer, job)
                counts[number] += 1
        except Exception as error:  # told below: a thread that dies in silence would look like a slow one
            failures.append(str(error))
            warm.abort()

    warm = threading.Barrier(len(producers) + 1)
    threads = [threading.Thread(target=work, args=each, daemon=True) for each in enumerate(producers)]
    for thread in threads:
        thread.start()
    try:
        warm.wait(LIMIT_S)
    except threading.BrokenBarrierError as error:
        raise ClientFailedError(f"transactions failed: {failures[:1]}") from error
    wait_for_go()
    begun, before = time.monotonic(), cost(os.getpid())
    until[0] = begun + job["seconds"]
    go.set()
    for thread in threads:
        thread.join(LIMIT_S)
    if failures or any(thread.is_alive() for thread in threads):
        raise ClientFailedError(f"transactions failed: {failures[:1]}")
    done = sum(counts)
    return measured(done * job["records"] * len(RECORD), begun, before) | {"commits": done}


def latency(job: Job) -> dict[str, float]:
    """From the beginning of a transaction of one record until a reader of committed records has it."""
    producer = _producer(job, 0)
    producer.init_transactions(LIMIT_S)
    consumer = Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(job["topic"], 0), timeout=30)
    consumer.assign([TopicPartition(job["topic"], 0, end)])
    one = job | {"records": 1, "partitions": 1}
    for _ in range(WARM_UP):
        _commit(producer, one)
        _read_one(consumer)
    took: list[int] = []
    wait_for_go()
    begun, before = time.monotonic(), cost(os.getpid())
    while time.monotonic() < begun + job["seconds"]:
        began = time.monotonic_ns()
        _commit(producer, one)
        _read_one(consumer)
        took.append(time.monotonic_ns() - began)
    took.sort()
    return measured(len(took) * len(RECORD), begun, before) | {
        "commits": len(took),
        "p50_ns": took[len(took) // 2],
        "p99_ns": took[len(took) * 99 // 100],
    }


def _producer(job: Job, number: int) -> Producer:
    return Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "transactional.id": f"{job['topic']}-{number}",
            "linger.ms": 0,
            "log_level": 2,
        }
    )


def _commit(producer: Producer, job: Job) -> None:
    producer.begin_transaction()
    for number in range(job["records"]):
        producer.produce(job["topic"], RECORD, partition=number % job["partitions"])
    producer.commit_transaction(LIMIT_S)


def _read_one(consumer: Consumer) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            return
    raise ClientFailedError("a committed record was not read in time")


def main() -> None:
    job = json.loads(sys.argv[1])
    work = {"commits": commits, "latency": latency}[job["do"]]
    try:
        print(json.dumps(work(job)), flush=True)
    except ClientFailedError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
