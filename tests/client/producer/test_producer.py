"""Promises of client/producer/producer.py, kept with our broker and with Apache Kafka alike."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas import Consumer, ConsumerRecord, Producer
from barnabas.client.network.failures import NoBroker
from barnabas.client.partitioner import partition_of
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from tests.client.unreliable import LossyProxy
from tests.deadline import Deadline
from tests.process import free_port

NewTopic = Callable[..., str]


def read_all(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(consumer.partitions_for(topic))
        found: list[ConsumerRecord] = []
        deadline = Deadline(60, f"{count} records")
        while len(found) < count:
            found += consumer.poll(deadline.left(1.0))
        return found + consumer.poll(0.05)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_arrive_as_they_were_sent(bootstrap: str, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic(3)
    with Producer(bootstrap, compression_type=codec) as producer:
        sent = [
            producer.send(
                topic,
                None if number % 10 == 9 else b"value %d" % number,
                key=b"key %d" % (number % 7) if number % 2 else None,
                headers={"number": b"%d" % number, "null": None} if number % 3 == 0 else (),
                timestamp=1_700_000_000_000 + number,
            )
            for number in range(2000)
        ]
    found = {(record.partition, record.offset): record for record in read_all(bootstrap, topic, 2000)}
    assert len(found) == 2000
    for number, each in enumerate(sent):
        place = each.result()
        record = found[place.partition, place.offset]
        assert record.value == (None if number % 10 == 9 else b"value %d" % number)
        assert record.key == (b"key %d" % (number % 7) if number % 2 else None)
        assert record.headers == ((("number", b"%d" % number), ("null", None)) if number % 3 == 0 else ())
        assert record.timestamp == place.timestamp == 1_700_000_000_000 + number


def test_a_key_goes_where_java_would_send_it(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(5)
    with Producer(bootstrap) as producer:
        for number in range(50):
            key = b"%d" % number
            assert producer.send(topic, b"", key=key).result().partition == partition_of(key, 5)


def test_records_without_a_key_are_spread_in_whole_batches(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    with Producer(bootstrap, batch_size=1000, linger_ms=60_000) as producer:
        places = [producer.send(topic, b"x" * 100) for _ in range(400)]
    counts = [0] * 4
    for place in places:
        counts[place.result().partition] += 1
    assert max(counts) - min(counts) < 20


def test_a_partition_can_be_named(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with Producer(bootstrap) as producer:
        assert producer.send(topic, b"", key=b"any", partition=1).result().partition == 1
        with pytest.raises(Refused, match="no partition 2, only 2"):
            producer.send(topic, b"", partition=2)


def test_results_wait_for_no_more_than_their_own_partition(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with Producer(bootstrap, linger_ms=60_000) as producer:
        first, second = producer.send(topic, b"a", partition=0), producer.send(topic, b"b", partition=1)
        assert not first.done()
        assert first.result().offset == 0
        assert first.done()
        assert not second.done()
        producer.flush()
        assert second.done()


@pytest.mark.parametrize("acks", [0, 1, "all", -1])
def test_every_kind_of_acknowledgement_delivers(bootstrap: str, new_topic: NewTopic, acks: str | int) -> None:
    topic = new_topic()
    # With acks=0 no answer says that a leader is not ready yet: an acknowledged record comes first.
    with Producer(bootstrap) as producer:
        producer.send(topic, b"0").result()
    with Producer(bootstrap, acks=acks) as producer:
        places = [producer.send(topic, b"%d" % number) for number in range(1, 10)]
    assert [record.value for record in read_all(bootstrap, topic, 10)] == [b"%d" % n for n in range(10)]
    assert places[8].result().offset == (-1 if acks == 0 else 9)


def test_a_batch_too_large_for_the_topic_is_split(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="2000")
    with Producer(bootstrap) as producer:
        places = [producer.send(topic, b"%03d" % number * 30) for number in range(100)]
    assert [place.result().offset for place in places] == list(range(100))
    assert [record.value for record in read_all(bootstrap, topic, 100)] == [
        b"%03d" % n * 30 for n in range(100)
    ]


def test_a_record_too_large_is_refused_and_the_next_one_sent(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="2000")
    with Producer(bootstrap) as producer:
        with pytest.raises(Refused, match=r"larger than max\.request\.size"):
            producer.send(topic, bytes(2 << 20))
        too_large = producer.send(topic, bytes(3000))
        with pytest.raises(Refused) as refused:
            too_large.result()
        assert refused.value.code is Code.MESSAGE_TOO_LARGE
        assert producer.send(topic, b"small").result().offset == 0


def test_an_unknown_topic_fails_in_bounded_time() -> None:
    with (
        Broker({"auto.create.topics.enable": "false"}) as broker,
        Producer(broker.bootstrap, max_block_ms=3000) as producer,
        pytest.raises(Refused, match="does not exist") as refused,
    ):
        producer.send("never-made", b"")
    assert refused.value.code is Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_created_by_the_first_record_where_brokers_do_so(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        assert producer.send(f"made-by-sending-{free_port()}", b"").result().offset == 0


def test_an_unreachable_broker_is_told_at_once() -> None:
    with pytest.raises(NoBroker):
        Producer(f"127.0.0.1:{free_port()}")


def test_settings_that_contradict_are_refused(bootstrap: str) -> None:
    with pytest.raises(BarnabasError, match="acks=all"):
        Producer(bootstrap, acks=1, enable_idempotence=True)
    with pytest.raises(Refused, match="must be 0, 1 or -1"):
        Producer(bootstrap, acks="most")
    with pytest.raises(Refused, match="no compression"):
        Producer(bootstrap, compression_type="rar")


def test_a_closed_producer_takes_nothing(bootstrap: str) -> None:
    producer = Producer(bootstrap)
    producer.close()
    producer.close()
    with pytest.raises(BarnabasError, match="closed"):
        producer.send("any", b"")


def test_lost_answers_neither_lose_nor_double_nor_reorder() -> None:
    with LossyProxy() as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        proxy.target = free_port()
        with Broker(settings, port=proxy.target), Producer(proxy.address, retry_backoff_ms=1) as producer:
            producer.partitions_for("t")
            places = []
            for number in range(100):
                if number % 10 == 5:
                    proxy.lose_next.set()
                places.append(producer.send("t", b"%d" % number))
                producer.flush()
            assert proxy.lost == 10
            assert [record.value for record in read_all(proxy.address, "t", 100)] == [
                b"%d" % n for n in range(100)
            ]
            assert {place.result().offset - n for n, place in enumerate(places)} == {0}


def test_a_broker_that_comes_back_gets_what_waited(tmp_path: Path) -> None:
    port = free_port()
    broker = Broker(data=tmp_path, port=port).start()
    with Producer(f"127.0.0.1:{port}", retry_backoff_ms=5) as producer:
        producer.send("t", b"before").result()
        broker.stop()
        waiting = producer.send("t", b"after")
        back = Broker(data=tmp_path, port=port)
        starting = threading.Timer(0.1, back.start)
        starting.start()
        try:
            assert waiting.result().offset == 1
            assert [r.value for r in read_all(f"127.0.0.1:{port}", "t", 2)] == [b"before", b"after"]
        finally:
            starting.join()
            back.stop()


def test_a_broker_that_stays_away_fails_the_record_in_time(tmp_path: Path) -> None:
    broker = Broker(data=tmp_path).start()
    producer = Producer(broker.bootstrap, delivery_timeout_ms=2000, retry_backoff_ms=5)
    producer.send("t", b"before").result()
    broker.stop()
    lost = producer.send("t", b"after")
    with pytest.raises(Refused) as refused:
        lost.result()
    assert refused.value.code is Code.NETWORK_EXCEPTION
    producer.close()


def test_the_topic_partition_of_a_result_is_plain(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap) as producer:
        place = producer.send(topic, b"").result()
    assert TopicPartition(place.topic, place.partition) == TopicPartition(topic, 0)
