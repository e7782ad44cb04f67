"""Promises of `barnabas log dump`."""

import json
import struct
from pathlib import Path

import pytest

from barnabas import Producer
from barnabas.log.transactions.markers import marker_batch
from barnabas.testing import Broker
from barnabas.types import Millis
from barnabas.wire.batch import Record, encode_batch, seal
from barnabas.wire.compression import Compression
from tests.cli.conftest import Run

BATCHES = (
    encode_batch([Record(0, 1000, b"k", b"v", (("h", b"x"),)), Record(1, 1001, None, None)]),
    encode_batch(
        [Record(2, 2000, b"\xff", "grüße".encode())],
        base_offset=2,
        codec=Compression.ZSTD,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        leader_epoch=4,
    ),
)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(BATCHES))
    return path


def test_batches_and_records_are_printed(barnabas: Run, segment: Path) -> None:
    ended = barnabas("log", "dump", segment)
    assert (ended.code, ended.err) == (0, "")
    first, *records, second, last = ended.out.splitlines()
    assert first.startswith("baseOffset: 0 lastOffset: 1 count: 2 ")
    assert records == [
        "| offset: 0 timestamp: 1000 key: k value: v headers: h=x",
        "| offset: 1 timestamp: 1001 key: None value: None",
    ]
    for part in (
        "baseSequence: 3",
        "producerId: 7",
        "partitionLeaderEpoch: 4",
        f"position: {len(BATCHES[0])}",
    ):
        assert part in second
    assert "compresscodec: zstd" in second
    assert last == "| offset: 2 timestamp: 2000 key: \\xff value: grüße"


def test_the_end_of_a_transaction_is_told_in_words(barnabas: Run, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    made = [marker_batch(7, 0, 3, commit=commit, now=Millis(1000)) for commit in (True, False)]
    path.write_bytes(b"".join(made))
    lines = [line for line in barnabas("log", "dump", path).out.splitlines() if line.startswith("|")]
    assert lines == [
        "| offset: 0 timestamp: 1000 endTxnMarker: COMMIT coordinatorEpoch: 3",
        "| offset: 0 timestamp: 1000 endTxnMarker: ABORT coordinatorEpoch: 3",
    ]
    shown = [json.loads(line) for line in barnabas("log", "dump", "--json", path).out.splitlines()]
    assert shown[1]["endTxnMarker"] == "COMMIT"


def test_aborted_transactions_are_printed(barnabas: Run, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 7, 10, 20, 15))
    line = "version: 0 producerId: 7 firstOffset: 10 lastOffset: 20 lastStableOffset: 15"
    assert barnabas("log", "dump", path).out.splitlines() == [line]


def test_machines_get_json(barnabas: Run, segment: Path) -> None:
    lines = [json.loads(line) for line in barnabas("log", "dump", "--json", segment).out.splitlines()]
    assert [line["count"] for line in lines if "count" in line] == [2, 1]
    assert [line["offset"] for line in lines if "offset" in line] == [0, 1, 2]
    assert lines[1]["headers"] == [["h", "x"]]
    assert len(barnabas("log", "dump", "--json", "--no-records", segment).out.splitlines()) == 2


def test_damage_is_found_and_told(barnabas: Run, segment: Path) -> None:
    whole = segment.read_bytes()
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    for data, sentence in (
        (bytes(damaged), f"byte {len(BATCHES[0])}: the batch at offset 2 fails its checksum."),
        (whole[:-1], f"the last {len(BATCHES[1]) - 1} bytes are no whole batch."),
        (b"this is no segment at all, but text that is long enough to look like one", "no whole batch."),
    ):
        segment.write_bytes(data)
        ended = barnabas("log", "dump", segment)
        assert ended.code == 1
        assert ended.err.startswith(f"barnabas: {segment}")
        assert ended.err.endswith(f"{sentence}\n")
    for reserved in (100, 5000):
        segment.write_bytes(whole + bytes(reserved))
        assert barnabas("log", "dump", segment).code == 0, "reserved space is no damage"
        segment.write_bytes(whole + bytes(reserved) + BATCHES[0])
        ended = barnabas("log", "dump", segment)
        assert ended.code == 1, "a hole is"
        assert ended.err.startswith(f"barnabas: {segment}, byte {len(whole)}: ")
    segment.write_bytes(b"")
    assert barnabas("log", "dump", segment) == (0, "", "")


def test_a_broken_file_keeps_no_other_from_being_read(barnabas: Run, segment: Path, tmp_path: Path) -> None:
    broken, absent = tmp_path / "broken.log", tmp_path / "absent.log"
    unknown_codec = bytearray(BATCHES[0])
    unknown_codec[22] = 7
    seal(unknown_codec, 0, len(unknown_codec))
    broken.write_bytes(BATCHES[0] + unknown_codec)
    ended = barnabas("log", "dump", "--no-records", broken, absent, segment)
    assert ended.code == 1
    assert ended.err.splitlines() == [
        f"barnabas: {broken}, byte {len(BATCHES[0])}: There is no compression number 7.",
        f"barnabas: {absent}: No such file or directory.",
    ]
    _, of_segment = ended.out.split(f"{segment}:\n")
    assert len(of_segment.splitlines()) == len(BATCHES)


def test_the_files_of_a_broker_can_be_read(barnabas: Run, tmp_path: Path) -> None:
    with (
        Broker({"log.index.interval.bytes": "100"}, data=tmp_path) as broker,
        Producer(broker.bootstrap) as producer,
    ):
        for number in range(10):
            producer.send("t", b"x" * 200, timestamp=1000 + number).result()
    folder = tmp_path / "t-0"
    ended = barnabas("log", "dump", "--json", *sorted(folder.glob("*.log")))
    assert [each["offset"] for each in map(json.loads, ended.out.splitlines()) if "value" in each] == list(
        range(10)
    )
    index = [
        json.loads(line)
        for line in barnabas("log", "dump", "--json", *folder.glob("*.index")).out.splitlines()
    ]
    positions = {
        each["baseOffset"]: each["position"]
        for each in map(json.loads, ended.out.splitlines())
        if "position" in each
    }
    assert index
    assert all(positions[entry["offset"]] == entry["position"] for entry in index)
    times = [
        json.loads(line)
        for line in barnabas("log", "dump", "--json", *folder.glob("*.timeindex")).out.splitlines()
    ]
    assert all(entry["timestamp"] == 1000 + entry["offset"] for entry in times)
