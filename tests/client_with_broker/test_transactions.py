"""Promises of a consumer where others write in transactions; with Apache Kafka, which has them."""

from collections.abc import Callable

import pytest
from confluent_kafka import Producer as Transactional

from barnabas import Admin, Consumer, ConsumerRecord, TopicPartition
from tests.client_with_broker.reading import poll_until
from tests.deadline import Deadline, eventually

pytestmark = pytest.mark.java


@pytest.fixture
def written(kafka_bootstrap: str, unique: Callable[[str], str]) -> tuple[TopicPartition, Transactional]:
    """A partition with a committed, an aborted, a plain, an aborted and a committed stretch; then one that is open."""
    topic = unique("transactions")
    with Admin(kafka_bootstrap) as admin:
        admin.create_topic(topic)
        eventually(lambda: topic in admin.list_topics(), "the topic")
    producer = Transactional({"bootstrap.servers": kafka_bootstrap, "transactional.id": topic})
    plain = Transactional({"bootstrap.servers": kafka_bootstrap})
    producer.init_transactions(30)

    def write(how: str, numbers: range) -> None:
        producer.begin_transaction()
        for number in numbers:
            producer.produce(topic, f"{how} {number}")
        producer.flush(30)

    write("committed", range(50))
    producer.commit_transaction(30)
    write("aborted", range(50))
    producer.abort_transaction(30)
    for number in range(10):
        plain.produce(topic, f"plain {number}")
    assert plain.flush(30) == 0
    write("aborted", range(50, 60))
    producer.abort_transaction(30)
    write("committed", range(50, 60))
    producer.commit_transaction(30)
    write("open", range(5))
    return TopicPartition(topic, 0), producer


COMMITTED = (
    [f"committed {n}" for n in range(50)]
    + [f"plain {n}" for n in range(10)]
    + [f"committed {n}" for n in range(50, 60)]
)
READ_COMMITTED = {
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
    "fetch_max_wait_ms": 50,
}


def test_a_reader_of_committed_records_sees_no_aborted_open_or_control_record(
    kafka_bootstrap: str, written: tuple[TopicPartition, Transactional]
) -> None:
    partition, producer = written
    with Consumer(bootstrap_servers=kafka_bootstrap, **READ_COMMITTED) as consumer:  # type: ignore[arg-type]
        consumer.assign([partition])
        found = [record.value.decode() for record in poll_until(consumer, 70)]
        assert found == COMMITTED
        end = consumer.end_offsets([partition])[partition]
        more: list[ConsumerRecord] = []

        def is_at_the_end() -> bool:
            more.extend(consumer.poll(0.1))
            return consumer.position(partition) == end

        eventually(is_at_the_end, "a position behind the last marker, before what is open")
        assert more + consumer.poll(0.3) == []
        producer.commit_transaction(30)
        assert [record.value for record in poll_until(consumer, 5)] == [b"open %d" % n for n in range(5)]


def test_columns_of_what_is_committed_are_the_same(
    kafka_bootstrap: str, written: tuple[TopicPartition, Transactional]
) -> None:
    partition, producer = written
    producer.abort_transaction(30)
    with Consumer(bootstrap_servers=kafka_bootstrap, **READ_COMMITTED) as consumer:  # type: ignore[arg-type]
        consumer.assign([partition])
        found: list[str] = []
        deadline = Deadline(60, "70 rows")
        while len(found) < 70:
            batch = consumer.poll_arrow(deadline.left(1.0), columns=["value"])
            found += (
                [value.decode() for value in batch.column("value").to_pylist()] if batch is not None else []
            )
        assert found == COMMITTED
        assert consumer.poll_arrow(0.3) is None


def test_a_reader_of_everything_sees_all_but_control_records(
    kafka_bootstrap: str, written: tuple[TopicPartition, Transactional]
) -> None:
    partition, producer = written
    with Consumer(bootstrap_servers=kafka_bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        found = [record.value.decode() for record in poll_until(consumer, 135)]
        assert sum(value.startswith("aborted") for value in found) == 60
        assert sum(value.startswith("open") for value in found) == 5
        assert consumer.poll(0.3) == []
    producer.abort_transaction(30)


def test_reading_begins_in_the_middle_of_an_aborted_transaction(
    kafka_bootstrap: str, written: tuple[TopicPartition, Transactional]
) -> None:
    partition, producer = written
    producer.abort_transaction(30)
    with Consumer(bootstrap_servers=kafka_bootstrap, **READ_COMMITTED) as consumer:  # type: ignore[arg-type]
        consumer.assign({partition: 70})
        found = [record.value.decode() for record in poll_until(consumer, 20)]
        assert found == COMMITTED[50:]
