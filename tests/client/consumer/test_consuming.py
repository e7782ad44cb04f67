"""Promises of client/consumer/consumer.py to its user: iteration, deserializers, columns, threads, commits."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from barnabas import BarnabasError, Consumer, Producer, Refused, TopicPartition
from barnabas.client.consumer.consumer import Woken
from barnabas.errors import Code
from tests.deadline import Deadline, eventually

NewTopic = Callable[..., str]


def fill(bootstrap: str, topic: str, values: list[bytes], partitions: int = 1) -> None:
    with Producer(bootstrap) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % partitions)


@pytest.fixture
def numbers(bootstrap: str, new_topic: NewTopic) -> TopicPartition:
    """A partition with the records 0 to 99."""
    topic = new_topic()
    fill(bootstrap, topic, [b"%d" % n for n in range(100)])
    return TopicPartition(topic, 0)


@pytest.fixture
def new_consumer(bootstrap: str) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers that read from the beginning, closed at the end of the test."""
    made: list[Consumer] = []

    def consumer(*topics: str, **settings: object) -> Consumer:
        known: dict[str, object] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
        made.append(Consumer(*topics, bootstrap_servers=bootstrap, **known | settings))  # type: ignore[arg-type]
        return made[-1]

    yield consumer
    for each in made:
        each.close()


def poll(consumer: Consumer, count: int, **limits: int) -> list[int]:
    found: list[int] = []
    deadline = Deadline(20, f"{count} records")
    while len(found) < count:
        found += [int(each.value) for each in consumer.poll(deadline.left(1.0), **limits)]
    return found


# --- iteration


def test_iterating_ends_when_nothing_came_in_time(
    new_consumer: Callable[..., Consumer], numbers: TopicPartition
) -> None:
    consumer = new_consumer(consumer_timeout_ms=2000, max_poll_records=7)
    consumer.assign([numbers])
    assert [int(record.value) for record in consumer] == list(range(100))
    assert list(consumer) == []


def test_a_loop_commits_what_it_has_seen_and_no_more(
    new_consumer: Callable[..., Consumer], numbers: TopicPartition
) -> None:
    consumer = new_consumer(numbers.topic, group_id=f"g-{numbers.topic}", enable_auto_commit=False)
    for record in consumer:
        assert consumer.position(numbers) == record.offset + 1
        if record.offset == 41:
            consumer.commit()
            break
    assert consumer.committed([numbers]) == {numbers: 42}
    assert poll(consumer, 1, max_records=1) == [42], "polling goes on where the loop has ended"


def test_a_seek_in_a_loop_counts_at_once(
    new_consumer: Callable[..., Consumer], numbers: TopicPartition
) -> None:
    consumer = new_consumer()
    consumer.assign([numbers])
    seen = []
    for record in consumer:
        seen.append(int(record.value))
        if seen == [0, 1]:
            consumer.seek(numbers, 90)
        if len(seen) == 4:
            break
    assert seen == [0, 1, 90, 91]


def test_a_record_can_be_taken_as_it_comes(
    bootstrap: str, new_consumer: Callable[..., Consumer], new_topic: NewTopic
) -> None:
    """With a fetch that may wait half a minute: what is produced is given at once."""
    topic = new_topic()
    consumer = new_consumer(fetch_max_wait_ms=30_000)
    consumer.assign([TopicPartition(topic, 0)])
    assert consumer.poll(0.1) == []
    with Producer(bootstrap) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number).result()
            assert poll(consumer, 1) == [number]


# --- what is given


def test_records_tell_all_about_themselves(
    bootstrap: str, new_consumer: Callable[..., Consumer], new_topic: NewTopic
) -> None:
    created, appended = new_topic(), new_topic(message_timestamp_type="LogAppendTime")
    with Producer(bootstrap) as producer:
        for topic in (created, appended):
            producer.send(topic, None, key=b"k", headers=[("h", b"v"), ("n", None)], timestamp=1234).result()
    consumer = new_consumer()
    consumer.assign([TopicPartition(created, 0)])
    (record,) = consumer.poll(10.0)
    assert record == (created, 0, 0, 1234, 0, b"k", None, (("h", b"v"), ("n", None)))
    consumer.assign([TopicPartition(appended, 0)])
    (record,) = consumer.poll(10.0)
    assert record.timestamp_type == 1
    assert record.timestamp > 1_700_000_000_000


def test_deserializers_make_what_one_wants_of_bytes(
    bootstrap: str, new_consumer: Callable[..., Consumer], new_topic: NewTopic
) -> None:
    topic = new_topic()
    with Producer(bootstrap) as producer:
        producer.send(topic, b'{"a": 1}', key=b"x")
        producer.send(topic, None, key=None)
    consumer = new_consumer(key_deserializer="str", value_deserializer="json")
    consumer.assign([TopicPartition(topic, 0)])
    assert [(each.key, each.value) for each in islice(consumer, 2)] == [("x", {"a": 1}), (None, None)]


def test_a_record_that_cannot_be_deserialized_is_told_after_those_before_it(
    bootstrap: str, new_consumer: Callable[..., Consumer], new_topic: NewTopic
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    fill(bootstrap, topic, [b"1", b"2", b"{", b"4"])
    consumer = new_consumer(value_deserializer=json.loads)
    consumer.assign([partition])
    assert poll(consumer, 2) == [1, 2]
    for _ in range(2):
        with pytest.raises(
            BarnabasError, match=rf"value of the record at offset 2 of {topic}-0 cannot be read"
        ):
            consumer.poll(10.0)
    assert consumer.position(partition) == 2
    consumer.seek(partition, 3)
    assert poll(consumer, 1) == [4]


def test_columns_and_records_can_be_had_in_turn(
    new_consumer: Callable[..., Consumer], numbers: TopicPartition
) -> None:
    consumer = new_consumer()
    consumer.assign([numbers])
    assert poll(consumer, 10, max_records=10) == list(range(10))
    batch = consumer.poll_arrow(10.0, columns=["offset", "value"])
    assert batch is not None
    assert batch.schema.names == ["offset", "value"]
    assert batch.column("offset").to_pylist() == list(range(10, 10 + len(batch)))
    assert [int(value) for value in batch.column("value").to_pylist()] == batch.column("offset").to_pylist()
    assert consumer.position(numbers) == 10 + len(batch)
    consumer.seek(numbers, 98)
    assert poll(consumer, 2) == [98, 99]
    assert consumer.poll_arrow(0.05) is None


def test_columns_hold_about_as_many_bytes_as_asked_for(
    bootstrap: str, new_consumer: Callable[..., Consumer], new_topic: NewTopic
) -> None:
    topic = new_topic(4)
    fill(bootstrap, topic, [b"x" * 1000] * 400, 4)
    consumer = new_consumer()
    consumer.assign([TopicPartition(topic, number) for number in range(4)])
    rows, deadline = 0, Deadline(20, "400 rows")
    while rows < 400:
        batch = consumer.poll_arrow(deadline.left(), max_bytes=1)
        assert batch is not None
        assert len(set(batch.column("partition").to_pylist())) == 1
        rows += len(batch)
    assert rows == 400


def test_a_small_buffer_starves_no_partition(
    bootstrap: str, new_consumer: Callable[..., Consumer], new_topic: NewTopic
) -> None:
    """With room for little more than one fetch, and fetches that wait for half a minute: all partitions come."""
    topic = new_topic(6)
    fill(bootstrap, topic, [b"x" * 1000] * 600, 6)
    consumer = new_consumer(fetch_max_bytes=2000, max_partition_fetch_bytes=1000, fetch_max_wait_ms=30_000)
    consumer.assign([TopicPartition(topic, number) for number in range(6)])
    found, deadline = 0, Deadline(20, "600 records")
    while found < 600:
        found += len(consumer.poll(deadline.left(), max_records=50))
    assert found == 600


# --- pausing


def test_a_partition_is_paused_in_the_middle_of_a_batch(
    new_consumer: Callable[..., Consumer], numbers: TopicPartition
) -> None:
    consumer = new_consumer()
    consumer.assign([numbers])
    assert poll(consumer, 5, max_records=5) == [0, 1, 2, 3, 4]
    consumer.pause(numbers)
    assert consumer.paused() == {numbers}
    assert consumer.poll(0.05) == []
    assert consumer.position(numbers) == 5
    consumer.resume(numbers)
    assert poll(consumer, 2, max_records=2) == [5, 6]


# --- threads


def test_a_consumer_in_poll_can_be_woken(new_consumer: Callable[..., Consumer], new_topic: NewTopic) -> None:
    consumer = new_consumer()
    consumer.assign([TopicPartition(new_topic(), 0)])
    waker = threading.Timer(0.05, consumer.wakeup)
    waker.start()
    with pytest.raises(Woken):
        consumer.poll(30.0)
    waker.join()
    assert consumer.poll(0.01) == [], "once"
    consumer.wakeup()
    with pytest.raises(Woken):
        list(consumer)


def test_two_threads_at_once_are_told(new_consumer: Callable[..., Consumer], new_topic: NewTopic) -> None:
    consumer = new_consumer()
    partition = TopicPartition(new_topic(), 0)
    consumer.assign([partition])
    found: list[BaseException] = []

    def other() -> None:
        eventually(lambda: consumer._user is not None, "the first thread in poll")
        try:
            consumer.seek(partition, 0)
        except BarnabasError as error:
            found.append(error)
        consumer.wakeup()

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(Woken):
        consumer.poll(30.0)
    thread.join()
    assert "two threads at once" in str(found[0])
    consumer.seek(partition, 0)


def test_a_closed_consumer_says_so(new_consumer: Callable[..., Consumer], numbers: TopicPartition) -> None:
    consumer = new_consumer()
    consumer.close()
    consumer.close()
    with pytest.raises(BarnabasError, match="closed"):
        consumer.assign([numbers])
    with pytest.raises(BarnabasError, match="closed"):
        consumer.poll()


# --- commits


def test_a_commit_that_is_not_waited_for_is_told_in_a_later_poll(
    new_consumer: Callable[..., Consumer], numbers: TopicPartition
) -> None:
    consumer = new_consumer(numbers.topic, group_id=f"g-{numbers.topic}", enable_auto_commit=False)
    poll(consumer, 10, max_records=10)
    told: list[tuple[dict[TopicPartition, int], Refused | None, threading.Thread]] = []
    consumer.commit_async(
        callback=lambda offsets, why: told.append((offsets, why, threading.current_thread()))
    )
    consumer.commit_async(
        {numbers: 7}, lambda offsets, why: told.append((offsets, why, threading.current_thread()))
    )
    consumer.pause(numbers)
    eventually(lambda: consumer.poll(0.05) == [] and len(told) == 2, "both to be told")
    me = threading.current_thread()
    assert told == [({numbers: 10}, None, me), ({numbers: 7}, None, me)]
    assert consumer.committed([numbers]) == {numbers: 7}, "none overtakes another"


def test_what_was_read_is_committed_as_time_goes_by(
    new_consumer: Callable[..., Consumer], numbers: TopicPartition
) -> None:
    consumer = new_consumer(numbers.topic, group_id=f"g-{numbers.topic}", auto_commit_interval_ms=10)
    poll(consumer, 10, max_records=10)
    consumer.pause(numbers)
    eventually(lambda: consumer.poll(0.02) == [] and consumer.committed([numbers]) == {numbers: 10}, "it")


def test_partitions_assigned_by_hand_can_be_committed_too(
    new_consumer: Callable[..., Consumer], numbers: TopicPartition
) -> None:
    group = f"g-{numbers.topic}"
    consumer = new_consumer(group_id=group)
    consumer.assign([numbers])
    poll(consumer, 10, max_records=10)
    consumer.close()
    consumer = new_consumer(group_id=group)
    consumer.assign([numbers])
    assert consumer.position(numbers) == 10


def test_one_way_to_read_at_a_time(new_consumer: Callable[..., Consumer], numbers: TopicPartition) -> None:
    consumer = new_consumer(group_id=f"g-{numbers.topic}")
    consumer.assign([numbers])
    with pytest.raises(BarnabasError, match="assigned by hand"):
        consumer.subscribe(numbers.topic)
    consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.subscribe(numbers.topic)
    assert consumer.subscription() == {numbers.topic}
    with pytest.raises(BarnabasError, match="has subscribed"):
        consumer.assign([numbers])
    assert poll(consumer, 100) == list(range(100))
    consumer.unsubscribe()
    consumer.assign([numbers])
    assert consumer.position(numbers) == 100, "it was committed on the way out"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"isolation_level": "dirty"}, "read_uncommitted or read_committed"),
        ({"partition_assignment_strategy": "lucky"}, "no 'lucky'"),
        ({"max_poll_records": 0}, "1 or more"),
        ({"group_protocol": "new"}, "classic or consumer"),
        ({"value_deserializer": "yaml"}, "bytes, str, json"),
        ({"group.id": "g"}, "did you mean 'group_id'"),
        ({"heartbeat_interval_ms": 50_000}, "less than session.timeout.ms"),
    ],
)
def test_settings_that_cannot_be_are_told(bootstrap: str, settings: dict[str, object], why: str) -> None:
    with pytest.raises(BarnabasError, match=why):
        Consumer(bootstrap_servers=bootstrap, group_id="g", **settings)  # type: ignore[arg-type]


def test_a_topic_that_there_is_not_is_told_once_and_waited_for(
    bootstrap: str, new_consumer: Callable[..., Consumer], new_topic: NewTopic
) -> None:
    topic = f"{new_topic()}-absent"
    consumer = new_consumer(topic, group_id=f"g-{topic}", allow_auto_create_topics=False)
    begun = time.monotonic()
    with pytest.raises(Refused, match=f"Topic '{topic}'") as caught:
        consumer.poll(30.0)
    assert caught.value.code is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert time.monotonic() - begun < 20
    assert consumer.poll(0.05) == []
    fill(bootstrap, topic, [b"1", b"2"])
    assert poll(consumer, 2) == [1, 2]


def test_a_topic_that_there_is_not_is_logged_once_while_others_are_read(
    new_consumer: Callable[..., Consumer],
    numbers: TopicPartition,
    new_topic: NewTopic,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A user with records to read at every poll would not hear of it for long."""
    absent = f"{new_topic()}-absent"
    consumer = new_consumer(
        numbers.topic, absent, group_id=f"g-{absent}", allow_auto_create_topics=False, retry_backoff_ms=5
    )
    with caplog.at_level(logging.WARNING, "barnabas.client"):
        eventually(lambda: caplog.records, "the warning")
        with pytest.raises(Refused, match=absent):
            poll(consumer, 101, max_records=1)  # after the last record at the latest
    assert [record.getMessage() for record in caplog.records] == [
        f"Topic {absent!r}: This topic or partition does not exist here. It is subscribed to, and waited for."
    ]


def test_a_commit_of_what_there_is_not_names_it(
    new_consumer: Callable[..., Consumer], numbers: TopicPartition
) -> None:
    consumer = new_consumer(group_id=f"g-{numbers.topic}")
    consumer.assign([numbers])
    with pytest.raises(
        Refused, match=f"the commit of {numbers.topic}-7: This topic or partition does not exist"
    ):
        consumer.commit({TopicPartition(numbers.topic, 7): 1})
