"""Records of groups are the bytes that Kafka writes, and what Kafka wrote is read. The bytes are Kafka 4.3's own."""

import json
import re
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.coordinator.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionMetadata,
    Record,
    TopicMetadata,
    TopicPartitions,
    Value,
    decode,
    encode,
)
from barnabas.wire.batch import Record as BatchRecord
from barnabas.wire.batch import encode_batch
from barnabas.wire.codec import Malformed, encoder
from barnabas.wire.schema import NO_ID
from tests.java import java_with

NOW = 1_700_000_000_000
ID = UUID(bytes=bytes(range(1, 17)))
GROUP = "000567726f7570"
MEMBER = GROUP + "00036d2d31"
OFFSET_KEY = f"0001{GROUP}0005746f70696300000007"
COMMITTED = OffsetCommitValue(42, 3, "note", NOW)
METADATA = ConsumerGroupMemberMetadataValue(
    instance_id="i",
    client_id="client",
    client_host="/host",
    subscribed_topic_names=("a", "b"),
    rebalance_timeout_ms=7000,
    server_assignor="uniform",
)
CLASSIC = ClassicMemberMetadata(9000, (ClassicProtocol("range", b"\x01\x02"),))
METADATA_START = "000002690007636c69656e74062f686f737403026102620000001b5808756e69666f726d"
ID_BYTES = "0102030405060708090a0b0c0d0e0f10"


def member(rebalance_timeout_ms: int, instance_id: str | None) -> MemberMetadata:
    return MemberMetadata(
        "m-1", instance_id, "client", "/host", rebalance_timeout_ms, 10_000, b"\x01\x02", b"\x03"
    )


def group(at: int, *members: MemberMetadata) -> GroupMetadataValue:
    return GroupMetadataValue("consumer", 5, "range", "m-1", at, members)


WRITTEN: list[tuple[Key, str, Value, str]] = [
    (
        OffsetCommitKey("group", "topic", 7),
        OFFSET_KEY,
        COMMITTED,
        "0004000000000000002a00000003056e6f74650000018bcfe5680000",
    ),
    (
        OffsetCommitKey("group", "topic", 7),
        OFFSET_KEY,
        OffsetCommitValue(42, 3, "note", NOW, topic_id=ID),
        f"0004000000000000002a00000003056e6f74650000018bcfe56800010010{ID_BYTES}",
    ),
    (
        OffsetCommitKey("group", "topic", 7),
        OFFSET_KEY,
        OffsetCommitValue(42, -1, "note", NOW, NOW + 60_000),
        "0001000000000000002a00046e6f74650000018bcfe568000000018bcfe65260",
    ),
    (
        GroupMetadataKey("group"),
        f"0002{GROUP}",
        group(NOW, member(60_000, "i")),
        (
            "00030008636f6e73756d657200000005000572616e676500036d2d310000018bcfe568000000000100036d2d310001690006636c"
            "69656e7400052f686f73740000ea60000027100000000201020000000103"
        ),
    ),
    (
        GroupMetadataKey("group"),
        f"0002{GROUP}",
        GroupMetadataValue(),
        "0003000000000000ffffffffffffffffffffffff00000000",
    ),
    (ConsumerGroupMetadataKey("group"), f"0003{GROUP}", ConsumerGroupMetadataValue(9), "00000000000900"),
    (
        ConsumerGroupMetadataKey("group"),
        f"0003{GROUP}",
        ConsumerGroupMetadataValue(9, metadata_hash=-2),
        "000000000009010008fffffffffffffffe",
    ),
    (
        ConsumerGroupPartitionMetadataKey("group"),
        f"0004{GROUP}",
        ConsumerGroupPartitionMetadataValue((TopicMetadata(ID, "a", 4, (PartitionMetadata(1, ("r",)),)),)),
        f"000002{ID_BYTES}0261000000040200000001020272000000",
    ),
    # An absent classic member is written out as null: the absence of the field would mean an empty one to Kafka.
    (ConsumerGroupMemberMetadataKey("group", "m-1"), f"0005{MEMBER}", METADATA, METADATA_START + "01000100"),
    (
        ConsumerGroupMemberMetadataKey("group", "m-1"),
        f"0005{MEMBER}",
        ConsumerGroupMemberMetadataValue(
            "i", None, "client", "/host", ("a", "b"), None, 7000, "uniform", CLASSIC
        ),
        METADATA_START + "0100110100002328020672616e67650301020000",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey("group"),
        f"0006{GROUP}",
        ConsumerGroupTargetAssignmentMetadataValue(9),
        "00000000000900",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey("group"),
        f"0006{GROUP}",
        ConsumerGroupTargetAssignmentMetadataValue(9, NOW),
        "0000000000090100080000018bcfe56800",
    ),
    (
        ConsumerGroupTargetAssignmentMemberKey("group", "m-1"),
        f"0007{MEMBER}",
        ConsumerGroupTargetAssignmentMemberValue((TopicPartitions(ID, (0, 2)),)),
        f"000002{ID_BYTES}0300000000000000020000",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey("group", "m-1"),
        f"0008{MEMBER}",
        ConsumerGroupCurrentMemberAssignmentValue(
            9, 8, 1, (TopicPartitions(ID, (0,)),), (TopicPartitions(ID, (2,), (8,)),)
        ),
        f"000000000009000000080102{ID_BYTES}02000000000002{ID_BYTES}0200000002010005020000000800",
    ),
    (
        ConsumerGroupRegularExpressionKey("group", "a.*"),
        f"0010{GROUP}0003612e2a",
        ConsumerGroupRegularExpressionValue(("a", "ab"), 3, NOW),
        "000003026103616200000000000000030000018bcfe5680000",
    ),
]
written = pytest.mark.parametrize(
    ("key", "key_bytes", "value", "value_bytes"), WRITTEN, ids=lambda v: type(v).__name__
)


@written
def test_a_record_is_the_bytes_that_kafka_writes(
    key: Key, key_bytes: str, value: Value, value_bytes: str
) -> None:
    assert encode(Record(key, value)) == (bytes.fromhex(key_bytes), bytes.fromhex(value_bytes))


@written
def test_what_kafka_wrote_is_read(key: Key, key_bytes: str, value: Value, value_bytes: str) -> None:
    assert decode(bytes.fromhex(key_bytes), bytes.fromhex(value_bytes)) == Record(key, value)


@written
def test_a_tombstone_has_a_key_and_no_value(key: Key, key_bytes: str, value: Value, value_bytes: str) -> None:
    assert encode(Record(key)) == (bytes.fromhex(key_bytes), None)
    assert decode(memoryview(bytes.fromhex(key_bytes)), None) == Record(key, None)


@pytest.mark.parametrize(
    ("value_bytes", "value"),
    [
        ("0000000000000000002a00046e6f74650000018bcfe56800", OffsetCommitValue(42, -1, "note", NOW)),
        ("0002000000000000002a00046e6f74650000018bcfe56800", OffsetCommitValue(42, -1, "note", NOW)),
        ("0003000000000000002a0000000300046e6f74650000018bcfe56800", COMMITTED),
    ],
)
def test_commits_of_older_brokers_are_read(value_bytes: str, value: OffsetCommitValue) -> None:
    assert decode(bytes.fromhex(OFFSET_KEY), bytes.fromhex(value_bytes)) == Record(
        OffsetCommitKey("group", "topic", 7), value
    )


def test_the_oldest_key_names_the_same_offset() -> None:
    value = bytes.fromhex("0000000000000000002a00046e6f74650000018bcfe56800")
    old = decode(b"\0\0" + bytes.fromhex(OFFSET_KEY)[2:], value)
    assert old == decode(bytes.fromhex(OFFSET_KEY), value)
    assert old is not None


@pytest.mark.parametrize(
    ("value_bytes", "value"),
    [
        (
            (
                "00000008636f6e73756d657200000005000572616e676500036d2d310000000100036d2d310006636c69656e7400052f686f7374"
                "000027100000000201020000000103"
            ),
            group(-1, member(-1, None)),
        ),
        (
            (
                "00010008636f6e73756d657200000005000572616e676500036d2d310000000100036d2d310006636c69656e7400052f686f7374"
                "0000ea60000027100000000201020000000103"
            ),
            group(-1, member(60_000, None)),
        ),
        (
            (
                "00020008636f6e73756d657200000005000572616e676500036d2d310000018bcfe568000000000100036d2d310006636c69656e"
                "7400052f686f73740000ea60000027100000000201020000000103"
            ),
            group(NOW, member(60_000, None)),
        ),
        (
            (
                "000409636f6e73756d6572000000050672616e6765046d2d310000018bcfe5680002046d2d31026907636c69656e74062f686f73"
                "740000ea600000271003010202030000"
            ),
            group(NOW, member(60_000, "i")),
        ),
    ],
)
def test_groups_of_older_and_newer_brokers_are_read(value_bytes: str, value: GroupMetadataValue) -> None:
    assert decode(bytes.fromhex(f"0002{GROUP}"), bytes.fromhex(value_bytes)) == Record(
        GroupMetadataKey("group"), value
    )


@pytest.mark.parametrize("kind", [9, 10, 11, 15, 17, 25, -1])
def test_a_record_of_a_type_we_do_not_know_is_left_alone(kind: int) -> None:
    assert decode(kind.to_bytes(2, "big", signed=True) + b"anything", b"whatever") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", None),
        ("00", None),
        ("0001", None),
        (f"0002{GROUP}00", None),
        (f"0002{GROUP}", ""),
        (f"0002{GROUP}", "0005"),
        (f"0002{GROUP}", "ffff"),
        (f"0002{GROUP}", "0003000000000000ffff"),
        (f"0003{GROUP}", "0000000000090000"),
        (f"0003{GROUP}", "0001000000090000"),
        (f"0005{MEMBER}", METADATA_START + "010000"),
    ],
)
def test_broken_records_are_malformed(key: str, value: str | None) -> None:
    with pytest.raises(Malformed):
        decode(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_records_are_values() -> None:
    key = OffsetCommitKey("group", "topic", 7)
    assert {key: 1}[OffsetCommitKey("group", "topic", 7)] == 1
    assert len({value for _, _, value, _ in WRITTEN}) > 10


@pytest.mark.java
def test_kafkas_own_tool_reads_what_we_write(tmp_path: Path, kafka_libs: Path) -> None:
    rows = [encode(Record(key, value)) for key, _, value, _ in WRITTEN]
    rows.append(encode(Record(OffsetCommitKey("group", "gone", 0))))
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(
        encode_batch([BatchRecord(i, NOW, key, value, ()) for i, (key, value) in enumerate(rows)])
    )
    done = subprocess.run(
        [
            *java_with(kafka_libs),
            *("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if "key:" in line or "payload:" in line]
    assert len(lines) == len(rows), done.stdout[-4000:]
    keys = [json.loads(found[1]) for line in lines if (found := re.search(r" key: (\{.*?\}\})", line))]
    assert [int(each["type"]) for each in keys] == [key.type for key, _, _, _ in WRITTEN] + [1]
    assert all('"group":"group"' in line or '"groupId":"group"' in line for line in lines)
    commit, member_of_both = lines[1], lines[9]
    assert '"offset":42,"leaderEpoch":3,"metadata":"note"' in commit
    assert '"name":"range"' in member_of_both
    assert "payload: <DELETE>" in lines[-1]


@pytest.mark.parametrize("group", ["g", "gruppe-ä", "x" * 300])
@pytest.mark.parametrize(
    "value", [(5, 3, "", 7), (0, -1, "", 0), (2**62, 2**31 - 1, "", 2**62), (5, 3, "meta", 7)]
)
@pytest.mark.parametrize("topic_id", [NO_ID, ID])
def test_the_short_way_to_write_a_commit_writes_what_the_codec_would(
    group: str, value: tuple[int, int, str, int], topic_id: UUID
) -> None:
    record = Record(OffsetCommitKey(group, "topic", 12), OffsetCommitValue(*value, topic_id=topic_id))
    key, written = encode(record)
    assert key == b"\x00\x01" + by_the_codec(record.key, 0)
    assert written == b"\x00\x04" + by_the_codec(record.value, 4)


def by_the_codec(part: Key | Value | None, version: int) -> bytes:
    out = bytearray()
    encoder(type(part), version)(part, out)
    return bytes(out)


def test_a_group_too_long_for_its_field_is_malformed_the_short_way_too() -> None:
    with pytest.raises(Malformed):
        encode(Record(OffsetCommitKey("x" * 40_000, "topic", 0), OffsetCommitValue(1)))
