"""Promises of Producer, kept with our broker and with Apache Kafka alike."""

import threading
from collections import defaultdict

import pytest

from barnabas import Admin, Producer, TopicPartition, errors
from barnabas.client.partitioner import partition_of
from tests.client_with_broker.conftest import NewTopic
from tests.client_with_broker.reading import read_topic
from tests.deadline import Deadline

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_records_arrive_as_they_were_sent(broker: str, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=broker, compression_type=codec, linger_ms=5) as producer:
        producer.send(topic, b"value", key=b"key", headers={"source": b"web", "none": None}, timestamp=1234)
        producer.send(topic, None, key=b"gone")
        producer.send(topic, b"")
        producer.send(topic, b"two of a name", headers=[("n", b"1"), ("n", b"2")])
        producer.send(topic, b"x" * 5000)
    found = read_topic(broker, topic, 5)
    assert [each.offset for each in found] == [0, 1, 2, 3, 4]
    assert [(each.key, each.value) for each in found[:3]] == [
        (b"key", b"value"),
        (b"gone", None),
        (None, b""),
    ]
    assert found[4].value == b"x" * 5000
    assert found[0].timestamp == 1234
    assert [tuple(each) for each in found[0].headers] == [("source", b"web"), ("none", None)]
    assert [tuple(each) for each in found[3].headers] == [("n", b"1"), ("n", b"2")]


def test_a_result_says_where_the_record_is(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with Producer(bootstrap_servers=broker) as producer:
        first = producer.send(topic, b"a", partition=1, timestamp=1000).result(30)
        second = producer.send(topic, b"b", partition=1).result(30)
    assert (first.topic, first.partition, first.offset, first.timestamp) == (topic, 1, 0, 1000)
    assert second.offset == 1


def test_a_callback_hears_of_each_record(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    heard: list[int] = []
    all_heard = threading.Event()

    def done(number: int) -> None:
        heard.append(number)
        if len(heard) == 100:
            all_heard.set()

    with Producer(bootstrap_servers=broker, linger_ms=5) as producer:
        for _ in range(100):
            producer.send(topic, b"x").add_done_callback(lambda sent: done(sent.result(0).offset))
        assert all_heard.wait(30)
    assert heard == list(range(100))


def test_a_key_goes_where_java_would_send_it(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic(5)
    keys = [b"%d" % number for number in range(50)]
    with Producer(bootstrap_servers=broker) as producer:
        sent = [producer.send(topic, b"", key=key) for key in keys]
        assert [each.result(30).partition for each in sent] == [partition_of(key, 5) for key in keys]


def test_records_without_a_key_go_everywhere_in_whole_batches(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    with Producer(bootstrap_servers=broker, batch_size=1000, linger_ms=20) as producer:
        for _ in range(3000):
            producer.send(topic, b"x" * 50)
    counts: dict[int, int] = defaultdict(int)
    for each in read_topic(broker, topic, 3000, partitions=3):
        counts[each.partition] += 1
    assert sorted(counts) == [0, 1, 2]
    assert min(counts.values()) > 300


def test_what_lingers_goes_out_by_itself_and_at_once_when_flushed(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=broker, linger_ms=60_000) as producer:
        sent = [producer.send(topic, b"x") for _ in range(10)]
        assert not any(each.done() for each in sent)
        producer.flush()
        assert all(each.done() for each in sent)
    with Producer(bootstrap_servers=broker, linger_ms=20) as producer:
        assert producer.send(topic, b"x").result(30).offset == 10


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement_delivers(broker: str, new_topic: NewTopic, acks: str | int) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=broker, acks=acks) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
    if acks != "all":
        # Nothing tells when they can be read: wait for the log, and its replicas, to have them.
        with Admin(broker) as admin:
            deadline, partition = Deadline(30, "100 records"), TopicPartition(topic, 0)
            while admin.list_offsets({partition: -1})[partition].offset < 100:
                deadline.left()
    assert [int(each.value or b"") for each in read_topic(broker, topic, 100)] == list(range(100))


def test_threads_share_a_producer_and_each_keeps_its_order(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    with Producer(bootstrap_servers=broker, linger_ms=2, batch_size=1000) as producer:

        def work(name: int) -> None:
            for number in range(1000):
                producer.send(topic, b"%d" % number, key=b"thread-%d" % name)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for each in read_topic(broker, topic, 4000, partitions=3):
        by_key[each.key or b""].append(int(each.value or b""))
    assert by_key == {b"thread-%d" % name: list(range(1000)) for name in range(4)}


def test_a_record_larger_than_its_topic_allows_is_refused_and_the_next_is_sent(
    broker: str, new_topic: NewTopic
) -> None:
    topic = new_topic(max_message_bytes="2000")
    with Producer(bootstrap_servers=broker) as producer:
        large = producer.send(topic, b"x" * 5000)
        with pytest.raises(errors.MessageTooLarge):
            large.result(30)
        assert producer.send(topic, b"small").result(30).offset == 0


def test_a_partition_that_there_is_not_is_refused(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with Producer(bootstrap_servers=broker) as producer:
        with pytest.raises(errors.UnknownTopicOrPartition, match="no partition 2"):
            producer.send(topic, b"x", partition=2).result(30)
        assert producer.partitions_for(topic) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]


def test_the_broker_knows_an_idempotent_producer_and_no_other(
    broker: str, new_topic: NewTopic, admin: Admin
) -> None:
    known, unknown = TopicPartition(new_topic(), 0), TopicPartition(new_topic(), 0)
    with Producer(bootstrap_servers=broker) as producer:
        for _ in range(3):
            producer.send(known.topic, b"x").result(30)
    with Producer(bootstrap_servers=broker, enable_idempotence=False) as producer:
        producer.send(unknown.topic, b"x").result(30)
    found = admin.describe_producers([known, unknown])
    assert [each.last_sequence for each in found[known]] == [2]
    assert found[unknown] == ()
