"""Promises of `barnabas group` and of `barnabas consume --group`."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.producer.producer import Producer
from barnabas.types import TopicPartition
from tests.cli.conftest import COMMAND, Run
from tests.deadline import eventually

Member: TypeAlias = "subprocess.Popen[bytes]"


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as found:
        yield found


@pytest.fixture
def filled(bootstrap: str, admin: Admin, topic: str) -> str:
    """A topic of two partitions; 0, 2, 4... to 18 in the first, the odd numbers in the second."""
    admin.create_topic(topic, partitions=2)
    with Producer(bootstrap) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp=1_000_000 + number)
    return topic


@pytest.fixture
def members(environment: dict[str, str], filled: str, group: str) -> Iterator[list[Member]]:
    """Two commands that read the topic together, for as long as they are let."""
    arguments: list[str | Path] = [COMMAND, "consume", filled, "--group", group, "--from-beginning"]
    started = [subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    yield started
    for each in started:
        if each.poll() is None:
            each.kill()
        each.communicate()


def wait_for(admin: Admin, group: str, members: int) -> None:
    """Until the group is stable with so many members, and each of them has its share."""

    def is_there() -> bool:
        found = next((each for each in admin.list_groups() if each.id == group), None)
        if found is None or found.state != "Stable":
            return False
        described = admin.describe_group(group)
        return len(described.members) == members and all(each.partitions for each in described.members)

    eventually(is_there, f"{members} members", 60)


def table(text: str, first: str) -> list[list[str]]:
    """The rows below the line that begins with this heading."""
    rows: list[list[str]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(first):
            break
    for line in lines:
        if not line:
            break
        rows.append(line.split())
    return rows


def test_a_group_goes_on_where_it_stopped(barnabas: Run, filled: str, group: str) -> None:
    one = barnabas("consume", filled, "--group", group, "--from-beginning", "--max", "7")
    assert (one.code, one.err) == (0, "")
    rest = barnabas("consume", filled, "--group", group, "--until-end")
    assert sorted(map(int, (one.out + rest.out).split())) == list(range(20))
    assert barnabas("consume", filled, "--group", group, "--until-end") == (0, "", "")


def test_a_new_group_begins_at_the_end_unless_told_otherwise(
    barnabas: Run, filled: str, group: str, admin: Admin
) -> None:
    assert barnabas("consume", filled, "--group", group, "--until-end") == (0, "", "")
    assert admin.list_group_offsets(group) == {TopicPartition(filled, 0): 10, TopicPartition(filled, 1): 10}


def test_members_share_and_what_they_printed_is_committed_when_they_are_interrupted(
    barnabas: Run, admin: Admin, filled: str, group: str, members: list[Member]
) -> None:
    first, second = members
    wait_for(admin, group, 2)
    first.send_signal(signal.SIGINT)
    out = first.communicate(timeout=60)[0]
    assert first.returncode == 130
    wait_for(admin, group, 1)
    eventually(lambda: sum(admin.list_group_offsets(group).values()) == 20, "all to be committed in time", 60)
    second.send_signal(signal.SIGTERM)
    out += second.communicate(timeout=60)[0]
    assert sorted(map(int, out.split())) == list(range(20))
    assert admin.describe_group(group).state == "Empty"


def test_a_group_is_described_with_its_lag_and_members(
    barnabas: Run, admin: Admin, bootstrap: str, filled: str, group: str
) -> None:
    barnabas("consume", filled, "--group", group, "--from-beginning", "--until-end")
    with Producer(bootstrap) as producer:
        producer.send(filled, b"late", partition=1)
    ended = barnabas("group", "describe", group)
    assert ended.code == 0
    head = dict(part.split(": ") for part in ended.out.splitlines()[0].split("\t"))
    assert (head["Group"], head["State"], head["Type"], head["Members"]) == (group, "Empty", "classic", "0")
    assert table(ended.out, "TOPIC") == [
        [filled, "0", "10", "10", "0", "-"],
        [filled, "1", "10", "11", "1", "-"],
    ]


def test_members_are_described_with_what_is_theirs(
    barnabas: Run, admin: Admin, filled: str, group: str, members: list[Member]
) -> None:
    wait_for(admin, group, 2)
    shown = barnabas("group", "describe", group).out
    head = dict(part.split(": ") for part in shown.splitlines()[0].split("\t"))
    assert (head["State"], head["Assignor"], head["Members"]) == ("Stable", "range", "2")
    rows = table(shown, "CONSUMER-ID")
    assert sorted(row[-1] for row in rows) == [f"{filled}:0", f"{filled}:1"]
    assert {row[3] for row in rows} == {"barnabas-cli"}
    owners = {row[1]: row[-1] for row in table(shown, "TOPIC")}
    assert owners == {row[-1].rpartition(":")[2]: row[0] for row in rows}

    for refused in (("delete", group), ("reset", group, "--topic", filled, "--to", "earliest", "--execute")):
        ended = barnabas("group", *refused)
        assert (ended.code, ended.out) == (1, "")
        assert "members" in ended.err


def test_groups_are_listed_and_deleted(barnabas: Run, filled: str, group: str) -> None:
    barnabas("consume", filled, "--group", group, "--from-beginning", "--until-end")
    assert group in barnabas("group", "list").out.split()
    assert group in barnabas("group", "list", "--state", "Empty", "--type", "classic").out.split()
    assert group not in barnabas("group", "list", "--state", "Stable").out.split()
    assert [group, "classic", "Empty", "consumer"] in table(barnabas("group", "list", "-v").out, "GROUP")
    assert barnabas("group", "delete", group) == (0, f"Deleted group {group}.\n", "")
    assert group not in barnabas("group", "list").out.split()
    absent = barnabas("group", "delete", group)
    assert (absent.code, absent.err) == (1, f"barnabas: Group '{group}': The group does not exist.\n")
    assert barnabas("group", "delete", group, "--if-exists") == (0, "", "")
    assert barnabas("group", "describe", group).code == 1


def test_a_reset_is_shown_first_and_done_when_told(
    barnabas: Run, admin: Admin, filled: str, group: str
) -> None:
    barnabas("consume", filled, "--group", group, "--from-beginning", "--until-end")
    before = admin.list_group_offsets(group)
    shown = barnabas("group", "reset", group, "--topic", filled, "--to", "earliest")
    assert shown.code == 0
    assert "--execute" in shown.err
    assert table(shown.out, "TOPIC") == [[filled, "0", "10", "0"], [filled, "1", "10", "0"]]
    assert admin.list_group_offsets(group) == before
    done = barnabas("group", "reset", group, "--topic", filled, "--to", "earliest", "--execute")
    assert (done.out, done.err) == (shown.out, "")
    again = barnabas("consume", filled, "--group", group, "--until-end")
    assert sorted(map(int, again.out.split())) == list(range(20))


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        (["--to", "latest"], [10, 10]),
        (["--to", "4"], [4, 4]),
        (["--to", "99"], [10, 10]),
        (["--to", "1970-01-01T00:16:40.010+00:00"], [5, 5]),
        (["--to", "1d"], [10, 10]),
        (["--shift-by", "-3"], [4, 4]),
        (["--shift-by", "2"], [9, 9]),
        (["--shift-by", "-100"], [0, 0]),
        (["--shift-by", "100"], [10, 10]),
    ],
)
def test_a_group_is_moved_by_offset_time_or_distance_within_the_log(
    barnabas: Run, admin: Admin, filled: str, group: str, where: list[str], offsets: list[int]
) -> None:
    partitions = [TopicPartition(filled, 0), TopicPartition(filled, 1)]
    admin.alter_group_offsets(group, dict.fromkeys(partitions, 7))
    ended = barnabas("group", "reset", group, "--topic", filled, *where, "--execute")
    assert ended.code == 0, ended.err
    assert admin.list_group_offsets(group) == dict(zip(partitions, offsets, strict=True))


def test_some_partitions_are_moved_and_others_left_alone(
    barnabas: Run, admin: Admin, filled: str, group: str
) -> None:
    ended = barnabas("group", "reset", group, "--topic", f"{filled}:1", "--to", "3", "--execute")
    assert table(ended.out, "TOPIC") == [[filled, "1", "-", "3"]]
    assert admin.list_group_offsets(group) == {TopicPartition(filled, 1): 3}


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (2, ["--to", "earliest", "--shift-by", "1"]),
        (2, []),
        (2, ["--to", "whenever"]),
        (1, ["--shift-by", "1"]),  # there is nothing committed
    ],
)
def test_a_reset_that_makes_no_sense_is_one_sentence(
    barnabas: Run, filled: str, group: str, code: int, arguments: list[str]
) -> None:
    ended = barnabas("group", "reset", group, "--topic", filled, *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("barnabas: ")
    assert ended.err.count("\n") == 1


def test_a_reset_without_a_place_to_go_on_from_is_told_all_there_are(
    barnabas: Run, filled: str, group: str
) -> None:
    ended = barnabas("group", "reset", group, "--topic", filled, "--to", "whenever")
    assert all(way in ended.err for way in ("earliest", "latest", "an offset", "T12:00", "10m", "'whenever'"))
    assert "milliseconds" not in ended.err


@pytest.mark.parametrize(("code", "which"), [(1, "{}:7"), (2, "{}:"), (2, "{}:x"), (1, "{}-absent")])
def test_topics_and_partitions_that_are_not_there_are_told(
    barnabas: Run, filled: str, group: str, code: int, which: str
) -> None:
    ended = barnabas("group", "reset", group, "--topic", which.format(filled), "--to", "latest")
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("option", [["--partition", "0"], ["--offset", "3"], ["--from-time", "1h"]])
def test_a_group_chooses_itself_what_is_read(
    barnabas: Run, filled: str, group: str, option: list[str]
) -> None:
    ended = barnabas("consume", filled, "--group", group, *option)
    assert (ended.code, ended.out) == (2, "")
    assert "group reset" in ended.err


def test_a_member_of_a_topic_that_is_not_there_is_told_at_once(barnabas: Run, topic: str, group: str) -> None:
    started = time.monotonic()
    ended = barnabas("consume", topic, "--group", group)
    assert (ended.code, ended.out) == (1, "")
    assert topic in ended.err
    assert time.monotonic() - started < 40
