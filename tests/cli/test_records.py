"""Promises of `barnabas produce` and `barnabas consume`."""

import json
import os
import pty
import select
import signal
import subprocess
from pathlib import Path

import pytest

from barnabas import Producer
from tests.cli.conftest import COMMAND, Run
from tests.deadline import Deadline

TO_END = ("--from-beginning", "--until-end")


def test_lines_go_in_and_come_out(barnabas: Run, topic: str) -> None:
    assert barnabas("produce", topic, stdin="one\ntwo\n\nlast without newline") == (0, "", "")
    assert barnabas("consume", topic, *TO_END) == (0, "one\ntwo\n\nlast without newline\n", "")


def test_keys_headers_and_nulls_come_out_as_json(barnabas: Run, topic: str) -> None:
    barnabas("topic", "create", topic)
    sent = barnabas(
        *("produce", topic, "--key-separator", ":", "--null-marker", "NULL", "-H", "from=cli", "-H", "n=1"),
        stdin="k1:v1\nk2:NULL\nNULL:v:3\n",
    )
    assert sent == (0, "", "")
    found = [
        json.loads(line) for line in barnabas("consume", topic, *TO_END, "--format", "json").out.splitlines()
    ]
    assert [(each["key"], each["value"]) for each in found] == [("k1", "v1"), ("k2", None), (None, "v:3")]
    assert {each["topic"] for each in found} == {topic}
    assert [each["offset"] for each in found] == [0, 1, 2]
    assert all(each["headers"] == [["from", "cli"], ["n", "1"]] for each in found)


def test_every_setting_of_the_client_can_be_given_by_kafkas_name(barnabas: Run, topic: str) -> None:
    told = barnabas("produce", topic, "-X", "linger.ms=0.5", "--command-property", "acks=1", stdin="a\n")
    assert told == (0, "", "")
    found = barnabas(
        "consume", topic, *TO_END, "-X", "isolation.level=read_committed", "-X", "check.crcs=false"
    )
    assert found == (0, "a\n", "")


@pytest.mark.parametrize(
    ("command", "given", "sentence"),
    [
        ("produce", "linger.m=5", "There is no setting 'linger.m': did you mean linger.ms?"),
        ("produce", "fetch.max.wait.ms", "--command-property takes NAME=VALUE, not 'fetch.max.wait.ms'."),
        ("produce", "batch.size=many", "batch.size cannot be 'many'."),
        ("produce", "batch.size=0", "batch_size cannot be 0: it must be a whole number"),
        ("consume", "isolation.level=x", "it must be read_uncommitted or read_committed."),
    ],
)
def test_a_setting_that_cannot_be_is_one_sentence(
    barnabas: Run, topic: str, command: str, given: str, sentence: str
) -> None:
    told = barnabas(command, topic, "-X", given, stdin="")
    assert told.code != 0
    assert sentence in told.err
    assert "Traceback" not in told.err


def test_bytes_that_are_no_text_may_be_typed(barnabas: Run, topic: str) -> None:
    byte = os.fsdecode(b"\xff")
    assert barnabas("produce", topic, "-k", byte, "-H", f"h={byte}", stdin="v\n") == (0, "", "")
    found = barnabas("consume", topic, *TO_END, "-f", f"{byte}%k %v %h\\n")
    assert found == (0, f"{byte}{byte} v h={byte}\n", "")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("\\t", "\t"), ("\\u20ac", "€"), ("€", "€"), ("\\u00e9", "é"), ("\\\\u", "\\u")),
        *((each, os.fsdecode(b"\xff")) for each in ("\\xff", "\\377", os.fsdecode(b"\xff"))),
    ],
)
def test_a_separator_may_be_any_character_or_byte(barnabas: Run, topic: str, typed: str, meant: str) -> None:
    assert barnabas("produce", topic, "-K", typed, stdin=f"k{meant}v\n") == (0, "", "")
    assert barnabas("consume", topic, *TO_END, "-f", "%k %v\\n").out == "k v\n"


def test_json_lines_make_a_faithful_copy(barnabas: Run, bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(topic, b"\xff\x00", key=b"\xfe", headers=[("h", b"\xfd"), ("h", None)], timestamp=1234)
        producer.send(topic, None, key="käse".encode(), timestamp=5678)
    lines = barnabas("consume", topic, *TO_END, "-f", "json").out
    assert barnabas("produce", topic + "-copy", "--format", "json", stdin=lines).code == 0
    copy = barnabas("consume", topic + "-copy", *TO_END, "-f", "json").out
    assert copy.replace(topic + "-copy", topic) == lines


def test_a_copy_has_partitions_of_its_own_unless_told_to_keep_them(
    barnabas: Run, bootstrap: str, topic: str
) -> None:
    for name, partitions in ((topic, "3"), (topic + "-kept", "3"), (topic + "-narrow", "1")):
        assert barnabas("topic", "create", name, "--partitions", partitions).code == 0
    with Producer(bootstrap) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number, key=b"the same", partition=number)
    lines = barnabas("consume", topic, *TO_END, "-f", "json").out

    def places(name: str) -> list[str]:
        return sorted(barnabas("consume", name, *TO_END, "-f", "%p %v\\n").out.splitlines())

    assert barnabas("produce", topic + "-narrow", "--format", "json", stdin=lines) == (0, "", "")
    assert places(topic + "-narrow") == ["0 0", "0 1", "0 2"]
    keep = ("--format", "json", "--keep-partitions")
    assert barnabas("produce", topic + "-kept", *keep, stdin=lines) == (0, "", "")
    assert places(topic + "-kept") == ["0 0", "1 1", "2 2"]
    assert barnabas("produce", topic + "-narrow", *keep, stdin=lines).code == 1


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_file_goes_in_whole(barnabas: Run, topic: str, tmp_path: Path, codec: str) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    (tmp_path / "lines.txt").write_text(text)
    assert barnabas("produce", topic, tmp_path / "lines.txt", "-z", codec) == (0, "", "")
    assert barnabas("consume", topic, *TO_END).out == text


def test_a_file_on_a_terminal_shows_a_progress_bar(
    environment: dict[str, str], topic: str, tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("line\n" * 1000)
    master, terminal = pty.openpty()
    with subprocess.Popen(
        [COMMAND, "produce", topic, tmp_path / "lines.txt"],
        stderr=terminal,
        env=environment | {"TERM": "xterm"},
    ) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                shown += os.read(master, 4096)
            except OSError:
                break
        assert process.wait(60) == 0
    os.close(master)
    assert b"lines.txt" in shown
    assert b"5.0/5.0 kB" in shown


def test_reading_starts_and_stops_where_it_is_told(barnabas: Run, bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp=1_700_000_000_000 + number * 60_000)

    def read(*arguments: str) -> list[str]:
        ended = barnabas("consume", topic, *arguments)
        assert (ended.code, ended.err) == (0, "")
        return ended.out.split()

    assert read("--from-beginning", "--max", "3") == ["0", "1", "2"]
    assert read("--partition", "0", "--offset", "7", "--max", "2") == ["7", "8"]
    assert read("--offset", "earliest", "--max-messages", "1") == ["0"]
    assert read("--offset=-2", "--until-end") == ["8", "9"]
    assert read("--from-time", str(1_700_000_000_000 + 4 * 60_000 + 1), "-e") == ["5", "6", "7", "8", "9"]
    assert read("--from-time", "2023-11-14T22:21:20+00:00", "-e") == ["8", "9"]
    assert read("--from-time", "1d", "-e") == []
    assert read("--timeout-ms", "50") == []
    assert read("--from-beginning", "-n", "2", "-f", "%t/%p/%o=%v %T %K%%\\n") == [
        *(f"{topic}/0/0=0", "1700000000000", "-1%"),
        *(f"{topic}/0/1=1", "1700000060000", "-1%"),
    ]


def test_what_cannot_be_read_is_one_sentence(barnabas: Run, topic: str) -> None:
    barnabas("topic", "create", topic)
    for code, *arguments in (
        (1, "never-made-topic", "--from-beginning"),
        (1, topic, "--partition", "3"),
        (2, topic, "--offset", "middle"),
        (2, topic, "--from-time", "yesterday"),
        (2, topic, "--from-beginning", "--offset", "1"),
        (2, topic, "--format", "xml"),
        (2, topic, "--format", "%q"),
    ):
        ended = barnabas("consume", *arguments)
        assert (ended.code, ended.out) == (code, ""), arguments
        assert ended.err.startswith("barnabas: ")
        assert ended.err.count("\n") == 1


def test_an_offset_beyond_the_end_is_told_of(barnabas: Run, topic: str) -> None:
    barnabas("produce", topic, stdin="a\nb\n")
    assert barnabas("consume", topic, "--offset", "2", "--until-end") == (0, "", "")
    ended = barnabas("consume", topic, "--offset", "99", "--timeout-ms", "50")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == (
        f"barnabas: Partition {topic}-0 ends at offset 2, before 99: what comes after its end is shown.\n"
    )


def test_what_cannot_be_sent_is_one_sentence_with_its_line(barnabas: Run, topic: str, tmp_path: Path) -> None:
    barnabas("topic", "create", topic)
    ended = barnabas("produce", topic, "--key-separator", ":", stdin="a:b\nno separator\n")
    assert ended.code == 1
    assert ended.err.startswith("barnabas: Line 2 of stdin cannot be sent: ")
    assert barnabas("consume", topic, *TO_END).out == "b\n", "what came before it is sent"
    for line in (
        "{",
        "[1]",
        "{}",
        '{"value": 1}',
        '{"value": "", "key": {"base64": "?"}}',
        '{"value": "", "headers": 1}',
        "[" * 100_000,
    ):
        ended = barnabas("produce", topic, "--format", "json", stdin=line)
        assert ended.code == 1, line
        assert "Line 1 of stdin" in ended.err
        assert "unforeseen" not in ended.err
        assert ended.err.count("\n") == 1
    for line in ('{"value": "\\ud800"}', '{"value": "", "headers": {"\\ud800": ""}}'):
        ended = barnabas("produce", topic, "--format", "json", stdin=line)
        assert ended.code == 1
        assert ended.err == (
            "barnabas: Line 1 of stdin cannot be sent: "
            "It has '\\ud800', half of a character, which UTF-8 cannot write.\n"
        )
    ended = barnabas("produce", topic, tmp_path / "absent.txt")
    assert (ended.code, ended.err) == (1, f"barnabas: {tmp_path}/absent.txt: No such file or directory.\n")


def test_what_is_typed_goes_out_without_waiting_for_more(
    environment: dict[str, str], barnabas: Run, topic: str
) -> None:
    barnabas("topic", "create", topic)
    with (
        subprocess.Popen([COMMAND, "produce", topic], stdin=subprocess.PIPE, env=environment) as producer,
        subprocess.Popen(
            [COMMAND, "consume", topic, "--from-beginning"], stdout=subprocess.PIPE, env=environment
        ) as consumer,
    ):
        assert producer.stdin is not None
        assert consumer.stdout is not None
        deadline = Deadline(60, "the typed lines")
        for word in (b"first\n", b"second\n"):
            producer.stdin.write(word)
            producer.stdin.flush()
            assert select.select([consumer.stdout], [], [], deadline.left())[0]
            assert consumer.stdout.readline() == word
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait(60) == 130
        producer.stdin.close()
        assert producer.wait(60) == 0


def test_a_reader_that_goes_away_is_no_drama(environment: dict[str, str], barnabas: Run, topic: str) -> None:
    barnabas("produce", topic, stdin="some line\n" * 50_000)
    with subprocess.Popen(
        [COMMAND, "consume", topic, "--from-beginning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"some line\n"
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def test_how_large_a_record_may_be_is_for_the_topic_to_say(barnabas: Run, topic: str) -> None:
    large = "x" * 3_000_000
    assert barnabas("topic", "create", topic).code == 0
    refused = barnabas("produce", topic, stdin=large)
    assert refused.code == 1
    assert "max.message.bytes" in refused.err
    assert barnabas("config", "set", "--topic", topic, "max.message.bytes=10000000").code == 0
    assert barnabas("produce", topic, stdin=large).code == 0
    assert barnabas("consume", topic, "--from-beginning", "--max", "1").out.strip() == large
