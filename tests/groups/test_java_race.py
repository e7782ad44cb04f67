"""Proves that one failure of Java's KIP-848 consumer is a race of its own two threads, whatever a broker answers.

The way of it in kafka-clients 4.3.0, where a background thread and the thread of the application share positions:

1. `poll` hands an event to the background thread and waits (AsyncKafkaConsumer:983, :2028). It is woken early in the
   event's processing (ApplicationEventProcessor:765); positions are validated after that (:785), at the same time.
2. Where metadata has changed, PositionsValidator notes its version first (:94), and only then puts partitions whose
   leader's epoch is another one into AWAIT_VALIDATION, one after the other (:95 to :98).
3. In between, `canSkipUpdateFetchPositions` (:141) finds the version known and every partition FETCHING, and the
   application's thread takes records (AsyncKafkaConsumer:2046). It sees that a partition may be read
   (FetchCollector:155), decodes (:169), and moves the position (:185), which throws if the background thread has come
   to that partition meanwhile (SubscriptionState:1140, :1208).
4. `collectFetch` gives what it has on a KafkaException only (FetchCollector:137). This is none: records of other
   partitions are gone, with their positions past them.

No answer of a broker decides it: a new leader epoch is enough, which every restart brings, Kafka's too. Seen with both
brokers, after a wait of 20 ms was put into a copy of the client behind (2) and of 35 ms behind the decoding: in 3 of
3 kills of ours (3 records a poll) and in 1 of 3 of Apache Kafka 4.3.0 (30 a poll). With the jar as it is: now and then.

Members of Java in these tests live with it (`JavaMember.goBack`). Once this test fails with a newer kafka-clients,
the race may be mended there, and both may go, with the ledger's count of stumbles.
"""

import subprocess
from pathlib import Path

import pytest

from tests.groups.group import compile_java

SOURCE = Path(__file__).with_name("PositionRace.java")


@pytest.mark.java
def test_javas_consumer_loses_a_race_with_itself_and_records_with_it(
    kafka_libs: Path, tmp_path: Path
) -> None:
    path = compile_java(kafka_libs, tmp_path, SOURCE)
    done = subprocess.run(
        ["java", "-cp", path, "org.apache.kafka.clients.consumer.internals.PositionRace"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "may skip validation: true",
        "threw: Cannot set a new position without a valid current position",
        "position of the first: 1",  # past a record that the application was never given
        "position of the second: 0",
    ], done.stderr
