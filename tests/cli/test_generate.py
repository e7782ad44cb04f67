"""Promises of `barnabas generate`."""

import json

from tests.cli.conftest import Run

TO_END = ("--from-beginning", "--until-end")


def test_generated_records_are_in_the_topic(barnabas: Run, topic: str) -> None:
    made = barnabas(
        "generate", "logs", "--count", "500", "--seed", "3", "--start", "1000000", "--topic", topic
    )
    assert made.code == 0
    assert made.err.startswith(f"500 records to {topic} in ")
    printed = barnabas(
        "generate", "logs", "--count", "500", "--seed", "3", "--start", "1000000", "--stdout"
    ).out
    consumed = barnabas("consume", topic, *TO_END)
    assert sorted(consumed.out.splitlines()) == sorted(printed.splitlines())


def test_whole_records_are_printed_as_produce_reads_them(barnabas: Run, topic: str) -> None:
    lines = barnabas("generate", "activity", "-n", "50", "--start", "2026-01-31T12:00:00+00:00", "--json").out
    assert barnabas("produce", topic, "--format", "json", stdin=lines).code == 0
    found = barnabas("consume", topic, *TO_END, "--format", "json").out
    keep = ("timestamp", "key", "value")
    copies = [{name: json.loads(line)[name] for name in keep} for line in found.splitlines()]
    by_time = sorted(copies, key=lambda each: each["timestamp"])
    assert by_time == [json.loads(line) for line in lines.splitlines()]
    assert by_time[0]["timestamp"] == 1769860800000


def test_a_broker_that_is_down_is_one_sentence(barnabas: Run) -> None:
    ended = barnabas("generate", "metrics", "--count", "1", "--bootstrap", "127.0.0.1:1")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "barnabas: No broker answers at 127.0.0.1:1 (connection refused).\n"
