"""Our client library beside confluent-kafka and kafka-python, all against our own broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench import librdkafka
from bench.measure import KAFKA, OURS, Case, Measured, Metric, SharedSide, SideState, Size, Wanted

NAME = "client"
TITLE = "Client libraries on the same broker"
FRESH = False
THEIRS = "the other"
PICTURE = "bench-clients.svg"
CONFLUENT, KAFKA_PYTHON, RECORDS, COLUMNS = "confluent-kafka", "kafka-python", "records", "columns"
TOLD = "confluent-kafka with reports"
ABOUT = (
    "Records of 100 B without keys, 4 partitions, one Barnabas broker; acks=all, linger 5 ms, no compression, every "
    "library with its own default batch size, partitioner and idempotence (on in ours, off in confluent-kafka), each "
    "in a process of its own. Loops as their manuals show them: confluent-kafka produce() + poll(0), with a delivery "
    "callback a record, which is what our futures and kafka-python's stand for, and without, when nobody hears of a "
    "record that is lost; consume(10,000) with a queue that is never full; kafka-python send() and poll(); ours "
    "send() and poll(), or send_table() of 100,000 rows and poll_arrow(). Every value that is read is looked at. All "
    "read the same log, written by librdkafka; consume is from `assign` to the last record, and in the half second "
    "that librdkafka takes to its first one it fetches ahead. Latency: one record at a time, linger 0, until it is "
    "acknowledged. Memory: resident memory of a process that sends so many records and then reads them: the "
    "most of it while the second half is sent or read, as a share of the most in the first half; one round."
)
METRICS = (
    Metric("produce_per_s", "produce", "records/s", more_is_better=True),
    Metric("consume_per_s", "consume", "records/s", more_is_better=True),
    Metric("first_ms", "first records after", "ms"),
    Metric("produce_cpu_us", "client CPU a record produced", "us"),
    Metric("consume_cpu_us", "client CPU a record consumed", "us"),
    Metric("p50_us", "send and wait, p50", "us"),
    Metric("p99_us", "send and wait, p99", "us"),
    Metric("start_mb", "memory at the start", "MB"),
    Metric("first_mb", "most memory in the first half", "MB"),
    Metric("second_mb", "most memory in the second half", "MB"),
    Metric("growth", "most memory, second half of first", "x"),
)
RECORD_BYTES, PARTITIONS, LINGER_MS = 100, 4, 5
# So many records that each takes some two seconds.
SENT = {CONFLUENT: 1_500_000, TOLD: 1_000_000, KAFKA_PYTHON: 100_000, RECORDS: 1_500_000, COLUMNS: 4_000_000}
READ = {CONFLUENT: 1_500_000, KAFKA_PYTHON: 400_000, RECORDS: 1_500_000, COLUMNS: 5_000_000}
# A leak of 5 bytes a record would show; what waits in buffers at its worst moment differs by less.
FLAT = 1.2


def rounds(size: Size) -> int:
    return 3 if size is Size.QUICK else 5


def cases(size: Size) -> Sequence[Case]:
    share = 0.3 if size is Size.QUICK else 1.0
    million = 1 if size is Size.QUICK else 10
    speed = [
        Case(f"{ours} beside {theirs}", 3 + 6 * share, {KAFKA: theirs, OURS: ours, "share": share})
        for ours, theirs in (
            (RECORDS, TOLD),
            (RECORDS, CONFLUENT),
            (COLUMNS, CONFLUENT),
            (RECORDS, KAFKA_PYTHON),
        )
    ]
    latency = Case(
        f"a record at a time beside {CONFLUENT}",
        2.5,
        {KAFKA: CONFLUENT, OURS: RECORDS, "sends": int(3000 * share)},
    )
    memory = [
        Case(
            f"{million} M, {ours} beside 1 M, {CONFLUENT}",
            4.0 + million * 1.5,
            {KAFKA: CONFLUENT, OURS: ours, "memory": million * 1_000_000},
            most_rounds=1,
        )
        for ours in (COLUMNS, RECORDS)
    ]
    return (*speed, latency, *memory)


def sides(brokers: Mapping[str, SideState]) -> Mapping[str, SideState]:
    """Both sides are clients of our broker."""
    return {KAFKA: SharedSide("the other library", brokers[OURS]), OURS: SharedSide("ours", brokers[OURS])}


def run(side: SideState, case: Case) -> Measured:
    who = case.settings[OURS if side.name == "ours" else KAFKA]
    if "sends" in case.settings:
        return _latency(side, who, case.settings["sends"])
    if "memory" in case.settings:
        # Nothing is asked of the other library's memory: a million records show it.
        records = case.settings["memory"]
        return _memory(side, who, records if who in (RECORDS, COLUMNS) else min(records, 1_000_000))
    is_read = case.settings[KAFKA] != TOLD  # nothing is reported of what is read
    return _speed(side, who, case.settings["share"], is_read=is_read)


def _speed(side: SideState, who: str, share: float, *, is_read: bool) -> Measured:
    sends = int(SENT[who] * share)
    with librdkafka.topic(side.server, "client-sent", PARTITIONS) as topic:
        sent = _contend(side, "produce", who, topic, sends)
    produced = {
        "produce_per_s": sends / sent.seconds,
        "produce_cpu_us": sent.usage.client_cpu_s / sends * 1e6,
    }
    if not is_read:
        return Measured(produced, {"produce_per_s": sent.usage.limit}, sent.usage.others)
    reads = int(READ[who] * share)
    with librdkafka.topic(side.server, "client-read", PARTITIONS) as topic:
        shape = {"partitions": PARTITIONS, "records": reads, "record_bytes": RECORD_BYTES}
        librdkafka.run(side.server, "produce", topic=topic, codec="none", **shape)
        read = _contend(side, "consume", who, topic, reads)
    return Measured(
        produced
        | {
            "consume_per_s": reads / read.seconds,
            "first_ms": read.said["first_s"] * 1e3,
            "consume_cpu_us": read.usage.client_cpu_s / reads * 1e6,
        },
        {"produce_per_s": sent.usage.limit, "consume_per_s": read.usage.limit},
        max(sent.usage.others, read.usage.others),
    )


def _latency(side: SideState, who: str, sends: int) -> Measured:
    with librdkafka.topic(side.server, "client-latency", PARTITIONS) as topic:
        done = _contend(side, "latency", who, topic, sends, linger_ms=0)
    return Measured(
        {"p50_us": done.said["p50_ns"] / 1e3, "p99_us": done.said["p99_ns"] / 1e3}, {}, done.usage.others
    )


def _memory(side: SideState, who: str, records: int) -> Measured:
    with librdkafka.topic(side.server, "client-memory", PARTITIONS) as topic:
        done = _contend(side, "memory", who, topic, records)
    first = max(done.said["sent_first"], done.said["read_first"])
    second = max(done.said["sent_second"], done.said["read_second"])
    return Measured(
        {
            "start_mb": done.said["start"] / 1e6,
            "first_mb": first / 1e6,
            "second_mb": second / 1e6,
            "growth": second / first,
        },
        {},
        done.usage.others,
    )


def _contend(
    side: SideState, do: str, who: str, topic: str, records: int, linger_ms: int = LINGER_MS
) -> librdkafka.Done:
    job = {
        "who": who,
        "topic": topic,
        "partitions": PARTITIONS,
        "records": records,
        "record_bytes": RECORD_BYTES,
        "linger_ms": linger_ms,
    }
    return librdkafka.run_program("bench.contender", side.server, do, job)


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    """What issue 5 asks for: ratios to the other library, its reports asked for or not, and flat memory."""
    if metric == "growth":
        return Wanted(FLAT, at_least=False, of_ours=True)
    if metric == "p50_us":
        return Wanted(1.0, at_least=False)
    asked = {
        ("produce_per_s", RECORDS, TOLD): 1.3,
        ("produce_per_s", RECORDS, CONFLUENT): 1.3,
        ("consume_per_s", RECORDS, CONFLUENT): 1.3,
        ("produce_per_s", COLUMNS, CONFLUENT): 3.0,
        ("consume_per_s", COLUMNS, CONFLUENT): 4.0,
        ("produce_per_s", RECORDS, KAFKA_PYTHON): 8.0,
        ("consume_per_s", RECORDS, KAFKA_PYTHON): 3.0,
    }
    bound = asked.get((metric, case.settings[OURS], case.settings[KAFKA]))
    return None if bound is None else Wanted(bound, at_least=True)
