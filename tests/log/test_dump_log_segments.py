"""Kafka's own DumpLogSegments reads our files, and finds nothing to object to."""

import re
import subprocess
from pathlib import Path

import pytest

from barnabas.config import TopicConfig
from barnabas.disk import RealDisk
from barnabas.log.log import Log
from barnabas.types import LeaderEpoch, Millis, Offset
from barnabas.wire.compression import Compression
from tests.java import java_with
from tests.log.batches import NOW, batch, end_transaction, write_in_transaction

pytestmark = pytest.mark.java

OBJECTION = re.compile(
    r"mismatch|isvalid: false|exception|out of order|not found|corrupt|error|fail", re.IGNORECASE
)


def _dump(libs: Path, folder: Path, *options: str, endings: tuple[str, ...]) -> str:
    files = sorted(str(path) for path in folder.iterdir() if path.suffix in endings)
    assert files
    done = subprocess.run(
        [
            *java_with(libs),
            *("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(files), *options),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-2000:]
    # SLF4J complains of its own set-up on stderr; what the tool objects to stands on stdout.
    assert not OBJECTION.search(done.stdout), done.stdout[-2000:]
    return done.stdout


def _write(folder: Path) -> int:
    """A life with all that shapes files: codecs, rolls, times that go back, a truncation, stops; the records."""
    config = TopicConfig(segment_bytes=30_000, index_interval_bytes=1000, retention_bytes=150_000)
    log = Log.open(RealDisk(), str(folder), config, now=NOW)
    for number in range(700):
        values = [b"%d %d" % (number, i) * (1 + number % 9) for i in range(1 + number % 7)]
        # Every fifth batch is older than those before it.
        made = batch(
            *values,
            timestamp=NOW + number * 10 - (500 if number % 5 == 0 else 0),
            codec=list(Compression)[number % 5],
            pid=number % 3,
            sequence=log.producers.by_id[number % 3].next_sequence
            if number % 3 in log.producers.by_id
            else 0,
        )
        log.append(made, epoch=LeaderEpoch(number // 300), now=Millis(NOW + number * 10))
        if number == 200:
            log.truncate_to(Offset(log.end - 150))
        if number == 400:
            log.close()
            log = Log.open(RealDisk(), str(folder), config, now=NOW, clean=True)
        if number == 500:
            # As after kill -9.
            log = Log.open(RealDisk(), str(folder), config, now=NOW)
    log.retain(NOW, log.end)
    assert len(log.segments) > 3
    log.close()
    return log.end - log.segments[0].base


def test_kafka_reads_every_record_of_our_segments(kafka_libs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    count = _write(folder)
    said = _dump(kafka_libs, folder, "--deep-iteration", endings=(".log",))
    assert len(re.findall(r"^\| offset: ", said, re.MULTILINE)) == count


def test_kafka_verifies_our_indexes_against_our_segments(kafka_libs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    _write(folder)
    said = _dump(kafka_libs, folder, endings=(".index", ".timeindex"))
    assert len(re.findall(r"^offset: \d+ position: \d+", said, re.MULTILINE)) > 50
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", said, re.MULTILINE)) > 50
    _dump(kafka_libs, folder, "--verify-index-only", endings=(".index", ".timeindex"))


def test_kafka_finds_our_indexes_sane(kafka_libs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    _write(folder)
    said = _dump(kafka_libs, folder, "--index-sanity-check", endings=(".index", ".timeindex"))
    assert said.count("passed sanity check") == len(
        [p for p in folder.iterdir() if p.suffix.endswith("index")]
    )


def test_kafka_reads_our_producer_snapshots(kafka_libs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    _write(folder)
    said = _dump(kafka_libs, folder, endings=(".snapshot",))
    assert re.search(r"producerId: 2 ", said)


def test_kafka_reads_what_was_aborted(kafka_libs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    config = TopicConfig(segment_bytes=5000, index_interval_bytes=1000)
    log = Log.open(RealDisk(), str(folder), config, now=NOW)
    for number in range(100):
        write_in_transaction(log, b"x" * 50, pid=number % 3)
        end_transaction(log, number % 3, commit=number % 5 == 0)
    log.close()
    wanted = [each for segment in log.segments for each in segment.aborted]
    said = _dump(kafka_libs, folder, endings=(".txnindex",))
    found = re.findall(
        r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", said
    )
    assert [tuple(map(int, each)) for each in found] == [tuple(each) for each in wanted]
    assert len(wanted) == 80
    told = _dump(kafka_libs, folder, "--deep-iteration", endings=(".log",))
    assert told.count("endTxnMarker: ABORT") == 80
    assert told.count("endTxnMarker: COMMIT") == 20
