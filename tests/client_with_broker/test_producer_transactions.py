"""Promises of a producer's transactions, kept with our broker and with Apache Kafka alike, in both ways they can go."""

import asyncio
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from barnabas import AsyncConsumer, AsyncProducer, BarnabasError, Consumer, Producer, TopicPartition, errors
from barnabas.client.producer.transactor import Transactor
from tests.client_with_broker.conftest import NewTopic
from tests.client_with_broker.reading import poll_until
from tests.deadline import Deadline, eventually

WAYS = ["in the cluster's way", "in the older way"]


@pytest.fixture(params=WAYS)
def transactional(
    request: pytest.FixtureRequest,
    broker: str,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Producer]]:
    """Makes producers with the same transactional id, closed at the end; in the older way as an older client."""
    if request.param == WAYS[1]:
        monkeypatch.setattr(Transactor, "version", 1)
    name = unique("transactional")
    made: list[Producer] = []

    def make() -> Producer:
        made.append(Producer(bootstrap_servers=broker, transactional_id=name))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


def committed(broker: str, topic: str, partitions: int = 1) -> list[bytes]:
    """All that a reader of committed records sees, up to what is decided."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(
        bootstrap_servers=broker, isolation_level="read_committed", fetch_max_wait_ms=50
    ) as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        found: list[bytes] = []
        deadline = Deadline(60, f"the end of {topic}")
        while any(consumer.position(place) < ends[place] for place in places):
            found += [record.value for record in consumer.poll(deadline.left(0.2))]
        return found


def test_what_is_sent_in_a_block_is_seen_when_it_ends(
    broker: str, new_topic: NewTopic, transactional: Callable[[], Producer]
) -> None:
    topic = new_topic(3)
    producer = transactional()
    with producer.transaction() as transaction:
        for number in range(9):
            transaction.send(topic, b"%d" % number, partition=number % 3)
        producer.flush(30)
        assert committed(broker, topic, 3) == []
    eventually(lambda: len(committed(broker, topic, 3)) == 9, "the records, once the markers are there")


def test_of_a_block_that_raises_nothing_is_seen(
    broker: str, new_topic: NewTopic, transactional: Callable[[], Producer]
) -> None:
    topic = new_topic()
    producer = transactional()

    def fail() -> None:
        with producer.transaction() as transaction:
            transaction.send(topic, b"stored and aborted").result(30)
            transaction.send(topic, b"aborted")
            raise ValueError("the user's own")

    with pytest.raises(ValueError, match="the user's own"):
        fail()
    for number in range(3):
        with producer.transaction() as transaction:
            transaction.send(topic, b"%d" % number)
    eventually(lambda: committed(broker, topic) == [b"0", b"1", b"2"], "the three that were committed")


def test_a_block_may_abort_without_an_error(
    broker: str, new_topic: NewTopic, transactional: Callable[[], Producer]
) -> None:
    topic = new_topic()
    producer = transactional()
    with producer.transaction() as transaction:
        given_up = transaction.send(topic, b"aborted")
        transaction.abort()
    with producer.transaction() as transaction:
        transaction.send(topic, b"seen")
    assert isinstance(given_up.exception(30), errors.TransactionAborted | None)
    eventually(lambda: committed(broker, topic) == [b"seen"], "what was committed")


def test_a_table_is_part_of_its_transaction(
    broker: str, new_topic: NewTopic, transactional: Callable[[], Producer]
) -> None:
    topic = new_topic(2)
    producer = transactional()
    rows = [b"%d" % number for number in range(1000)]
    with producer.transaction() as transaction:
        transaction.send_table(topic, pa.table({"value": rows}))
        transaction.abort()
    with producer.transaction() as transaction:
        transaction.send_table(topic, pa.table({"value": rows}))
    eventually(lambda: sorted(committed(broker, topic, 2)) == sorted(rows), "the table, once")


def test_a_newer_producer_fences_the_one_before(
    broker: str, new_topic: NewTopic, transactional: Callable[[], Producer]
) -> None:
    topic = new_topic()
    zombie = transactional()
    zombie.begin_transaction()
    zombie.send(topic, b"of the zombie").result(30)
    successor = transactional()
    successor.init_transactions()

    def go_on() -> None:
        with successor.transaction() as transaction:
            transaction.send(topic, b"of its successor")
        zombie.send(topic, b"too late")
        zombie.commit_transaction()

    with pytest.raises((errors.TransactionAbortable, errors.ProducerFenced)):
        go_on()
    with pytest.raises(errors.ProducerFenced, match="Close this producer"):
        zombie.abort_transaction()
    with pytest.raises(errors.ProducerFenced), zombie.transaction():
        pass
    with successor.transaction() as transaction:
        transaction.send(topic, b"again")
    eventually(
        lambda: committed(broker, topic) == [b"of its successor", b"again"], "what the successor committed"
    )


def test_a_record_that_fails_breaks_its_transaction_and_not_the_next(
    broker: str, new_topic: NewTopic, transactional: Callable[[], Producer]
) -> None:
    topic = new_topic(max_message_bytes="1000")
    producer = transactional()

    def too_large() -> None:
        with producer.transaction() as transaction:
            transaction.send(topic, b"small")
            transaction.send(topic, b"x" * 5000)

    with pytest.raises(errors.TransactionAbortable) as caught:
        too_large()
    assert isinstance(caught.value.__cause__, errors.MessageTooLarge)
    with producer.transaction() as transaction:
        transaction.send(topic, b"the next")
    eventually(lambda: committed(broker, topic) == [b"the next"], "the next transaction")


def test_records_are_copied_once_with_the_offsets_of_what_was_read(
    broker: str, new_topic: NewTopic, unique: Callable[[str], str], transactional: Callable[[], Producer]
) -> None:
    source, copy = new_topic(2), new_topic(2)
    with Producer(bootstrap_servers=broker) as plain:
        for number in range(100):
            plain.send(source, b"%03d" % number, partition=number % 2)
    producer, left, is_kept = transactional(), 100, True
    with Consumer(
        source,
        bootstrap_servers=broker,
        group_id=unique("copiers"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=15,
    ) as consumer:
        deadline = Deadline(60, "100 copies")
        while left:
            records = consumer.poll(deadline.left(10.0))
            with producer.transaction() as transaction:
                for record in records:
                    transaction.send(copy, record.value, partition=record.partition)
                transaction.send_offsets(consumer)
                if not is_kept:
                    transaction.abort()
                    consumer.seek_to_committed()
            left -= len(records) if is_kept else 0
            is_kept = not is_kept
    eventually(lambda: len(committed(broker, copy, 2)) == 100, "the last marker")
    found = committed(broker, copy, 2)
    assert sorted(found) == [b"%03d" % number for number in range(100)]
    assert [each for each in found if int(each) % 2] == [b"%03d" % number for number in range(1, 100, 2)]


def test_offsets_of_another_generation_are_refused(
    broker: str, new_topic: NewTopic, unique: Callable[[str], str], transactional: Callable[[], Producer]
) -> None:
    topic = new_topic()
    place = TopicPartition(topic, 0)
    producer = transactional()
    with Producer(bootstrap_servers=broker) as plain:
        plain.send(topic, b"read")
    with Consumer(
        topic,
        bootstrap_servers=broker,
        group_id=unique("group"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    ) as consumer:
        poll_until(consumer, 1)
        member = consumer.group_metadata()
        with pytest.raises(errors.TransactionAbortable) as caught, producer.transaction() as transaction:
            transaction.send_offsets({place: 1}, member._replace(generation_id=member.generation_id + 1))
        assert isinstance(caught.value.__cause__, errors.IllegalGeneration | errors.StaleMemberEpoch)
        assert consumer.committed([place]) == {}
        with producer.transaction() as transaction:
            transaction.send_offsets({place: 1}, member)
        assert consumer.committed([place]) == {place: 1}


def test_a_producer_that_is_closed_leaves_nothing_open(
    broker: str, new_topic: NewTopic, transactional: Callable[[], Producer]
) -> None:
    topic = new_topic()
    place = TopicPartition(topic, 0)
    producer = transactional()
    producer.begin_transaction()
    producer.send(topic, b"never decided").result(30)
    producer.close()

    def end() -> int:
        with Consumer(bootstrap_servers=broker, isolation_level="read_committed") as consumer:
            return consumer.end_offsets([place])[place]

    eventually(lambda: end() == 2, "the marker behind the record")
    assert committed(broker, topic) == []


def test_a_consumer_that_commits_by_itself_sends_no_offsets(
    broker: str, new_topic: NewTopic, unique: Callable[[str], str], transactional: Callable[[], Producer]
) -> None:
    topic = new_topic()
    producer = transactional()
    with (
        Consumer(topic, bootstrap_servers=broker, group_id=unique("group")) as consumer,
        pytest.raises(BarnabasError, match="enable_auto_commit=False"),
        producer.transaction() as transaction,
    ):
        transaction.send_offsets(consumer)


def test_transactions_with_asyncio(broker: str, new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    source, copy = new_topic(), new_topic()
    with Producer(bootstrap_servers=broker) as plain:
        for number in range(5):
            plain.send(source, b"%d" % number)

    async def fail(producer: AsyncProducer) -> None:
        async with producer.transaction() as transaction:
            await transaction.send(copy, b"aborted")
            raise ValueError("no")

    async def main() -> None:
        async with (
            AsyncProducer(bootstrap_servers=broker, transactional_id=unique("async")) as producer,
            AsyncConsumer(
                source,
                bootstrap_servers=broker,
                group_id=unique("group"),
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            ) as consumer,
        ):
            with pytest.raises(ValueError, match="no"):
                await fail(producer)
            left = 5
            async for record in consumer:
                async with producer.transaction() as transaction:
                    await transaction.send(copy, record.value)
                    await transaction.send_offsets(consumer)
                left -= 1
                if not left:
                    break
            place = TopicPartition(source, 0)
            assert await consumer.committed([place]) == {place: 5}

    asyncio.run(main())
    eventually(lambda: committed(broker, copy) == [b"0", b"1", b"2", b"3", b"4"], "the copies")
