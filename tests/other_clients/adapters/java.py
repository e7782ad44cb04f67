"""Owns the Java process through which tests drive Apache Kafka's own client. Called through ClientAdapter.

The process is ClientDriver.java: one JSON object a line in, one out. One JVM serves a whole test session.
"""

import base64
import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.java import java_with
from tests.other_clients.adapters.adapter import DEADLINE_S, ClientAdapter, Record, Refusal, Stored

_SOURCE = Path(__file__).with_name("ClientDriver.java")
_JVM_START_S = 120.0  # the source is compiled at start; several JVMs may share two cores


class JavaAdapter(ClientAdapter):
    name = "java"

    def __init__(self, bootstrap: str, libs: Path) -> None:
        super().__init__(bootstrap)
        self._process = subprocess.Popen(
            [*java_with(libs, heap="512m"), str(_SOURCE), bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_answers, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self._answer(_JVM_START_S)

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)
            del self._errors[:-50]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdin.close()
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join()
        self._process.stdout.close()
        self._process.stderr.close()

    def _answer(self, within: float) -> Any:
        try:
            line = self._answers.get(timeout=within)
        except queue.Empty:
            raise AssertionError(f"Java did not answer in {within:g} s: {''.join(self._errors)}") from None
        assert line, f"Java is gone: {''.join(self._errors)}"
        answer = json.loads(line)
        if "failure" in answer:
            raise AssertionError(f"Java failed: {answer['failure']}")
        if "code" in answer:
            raise Refusal(answer["code"], answer.get("text") or "")
        return answer.get("result")

    def _call(self, verb: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer(2 * DEADLINE_S)

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self._call("create", topic=topic, partitions=partitions, configs=dict(configs or {}))

    def delete_topic(self, topic: str) -> None:
        self._call("delete", topic=topic)

    def topics(self) -> set[str]:
        return set(self._call("topics"))

    def partition_count(self, topic: str) -> int:
        return int(self._call("partitionCount", topic=topic))

    def add_partitions(self, topic: str, total: int) -> None:
        self._call("addPartitions", topic=topic, total=total)

    def configs(self, topic: str) -> dict[str, str | None]:
        return dict(self._call("configs", topic=topic))

    def set_config(self, topic: str, name: str, value: str) -> None:
        self._call("setConfig", topic=topic, name=name, value=value)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        return int(self._call("deleteRecords", topic=topic, partition=partition, before=before))

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        first, end = self._call("offsets", topic=topic, partition=partition)
        return first, end

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        found = self._call("offsetForTime", topic=topic, partition=partition, timestamp=timestamp_ms)
        return None if found is None else int(found)

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        return list(
            self._call(
                "produce",
                topic=topic,
                partition=partition,
                codec=codec,
                idempotent=idempotent,
                records=[_to_json(record) for record in records],
            )
        )

    def transaction(self, verb: str, **arguments: Any) -> Any:
        """A step of a producer with a transactional id; `Open` gives the number that the others name it by."""
        return self._call(f"transaction{verb}", **arguments)

    def read(
        self, topic: str, partition: int, start: int, count: int, *, committed: bool = False
    ) -> list[Stored]:
        rows = self._call(
            "read",
            committed=committed,
            topic=topic,
            partition=partition,
            start=start,
            count=count,
            withinMs=int(DEADLINE_S * 1000),
        )
        return [Stored(row[0], _from_json(row[1:])) for row in rows]


def _to_json(record: Record) -> list[Any]:
    headers = [[name, _text(value)] for name, value in record.headers]
    return [_text(record.key), _text(record.value), record.timestamp_ms, headers]


def _from_json(row: list[Any]) -> Record:
    key, value, timestamp_ms, headers = row
    return Record(
        _bytes(key), _bytes(value), tuple((name, _bytes(value)) for name, value in headers), timestamp_ms
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
