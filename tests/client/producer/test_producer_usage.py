"""Promises of the producer to programs that use it: settings, serializers, futures, threads, asyncio."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas import AsyncProducer, Consumer, Producer, TopicPartition
from barnabas.client.network.failures import TimedOut
from barnabas.client.partitioner import partition_of
from barnabas.client.producer.batches import Sent
from barnabas.errors import BarnabasError, Code, MessageTooLarge, Refused
from barnabas.testing import Broker
from tests.client.producer.test_producer import read_all
from tests.deadline import eventually

NewTopic = Callable[..., str]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"linger": 5}, "no setting 'linger': did you mean 'linger_ms'"),
        ({"compresion_type": "lz4"}, "did you mean 'compression_type'"),
        ({"bootstrap.servers": "x"}, "no setting 'bootstrap.servers'"),
        ({"colour": "red"}, "no setting 'colour'"),
        ({"linger_ms": -1}, "linger_ms cannot be -1: it must be a number, 0 or more"),
        ({"batch_size": "16k"}, "batch_size cannot be '16k'"),
        ({"max_in_flight_requests_per_connection": 6, "enable_idempotence": True}, "5 or less"),
        ({"value_serializer": "xml"}, "value_serializer cannot be 'xml': say bytes, str, json"),
    ],
)
def test_a_wrong_setting_is_told_with_what_was_meant(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BarnabasError, match=said):
        Producer(**given)


def test_serializers_by_name_and_of_ones_own(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap, key_serializer="str", value_serializer="json") as producer:
        producer.send(topic, {"price": 3, "name": "naïve"}, key="clé").result(10)
        producer.send(topic, None, key=None).result(10)
        with pytest.raises(BarnabasError, match="The key cannot be serialized: text is wanted, not int"):
            producer.send(topic, {}, key=1)
        with pytest.raises(BarnabasError, match="The value cannot be serialized"):
            producer.send(topic, object())
    with Producer(bootstrap_servers=bootstrap, value_serializer=lambda number: b"%d" % number) as producer:
        producer.send(topic, 42).result(10)
    first, second, third = read_all(bootstrap, topic, 3)
    assert json.loads(first.value or b"") == {"price": 3, "name": "naïve"}
    assert first.key == "clé".encode()
    assert (second.key, second.value) == (None, None)
    assert third.value == b"42"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"value": "text"}, "A value is bytes or None, not str: give the producer a value_serializer"),
        ({"value": b"", "key": 5}, "A key is bytes or None, not int"),
        ({"value": b"", "headers": {"h": "text"}}, "A header is a name and bytes or None"),
        ({"value": b"", "headers": [b"h"]}, "A header is a name and bytes or None"),
    ],
)
def test_a_wrong_type_is_told_before_anything_is_sent(
    bootstrap: str, record: dict[str, Any], said: str
) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer, pytest.raises(BarnabasError, match=said):
        producer.send("t", **record)


def test_buffers_are_taken_as_they_are_now(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap) as producer:
        buffer = bytearray(b"now")
        producer.send(topic, buffer, key=memoryview(b"key"))
        buffer[:] = b"NOT"
    (record,) = read_all(bootstrap, topic, 1)
    assert (record.key, record.value) == (b"key", b"now")


def test_a_partitioner_of_ones_own(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(4)

    def last(name: str, key: bytes | None, partitions: int) -> int:
        return partitions if key == b"beyond" else partitions - 1

    with Producer(bootstrap_servers=bootstrap, partitioner=last) as producer:
        assert producer.send(topic, b"", key=b"any").result(10).partition == 3
        assert producer.send(topic, b"").result(10).partition == 3
        assert producer.send(topic, b"", partition=1).result(10).partition == 1
        with pytest.raises(BarnabasError, match="The partitioner chose partition 4"):
            producer.send(topic, b"", key=b"beyond")


@contextmanager
def held_up(producer: Producer) -> Iterator[None]:
    """Meanwhile its network is busy with something else: no record comes to its end."""
    begun, may_go_on = threading.Event(), threading.Event()

    def hold_up() -> None:
        begun.set()
        may_go_on.wait(30)

    producer._network.post(hold_up)
    assert begun.wait(30)
    try:
        yield
    finally:
        may_go_on.set()


def test_futures_tell_once_and_in_their_own_time(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    told: list[int] = []
    with Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer:
        sent = producer.send(topic, b"", timestamp=5)
        sent.add_done_callback(lambda future: told.append(future.result(0).offset))
        assert not sent.done()
        with held_up(producer), pytest.raises(TimedOut):
            producer.flush(0)
        assert sent.result(10) == (topic, 0, 0, 5)
        eventually(lambda: told == [0], "the callback")
        sent.add_done_callback(lambda future: told.append(100))
        assert told == [0, 100]


def test_a_callback_may_send_but_not_wait(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    problems: list[BarnabasError] = []
    followed: list[Sent] = []
    over = threading.Event()

    with Producer(bootstrap_servers=bootstrap) as producer:

        def follow(_: Sent) -> None:
            followed.append(producer.send(topic, b"second"))
            try:
                producer.flush()
            except BarnabasError as error:
                problems.append(error)
            over.set()

        producer.partitions_for(topic)
        with held_up(
            producer
        ):  # a callback added to a record that is done is called by this thread, and may wait
            producer.send(topic, b"first").add_done_callback(follow)
        assert over.wait(10)
        assert followed[0].result(10).offset == 1
    assert "must not wait" in str(problems[0])


def test_keys_of_tables_and_records_go_to_the_same_partitions(bootstrap: str, new_topic: NewTopic) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = new_topic(5)
    keys = [f"key {number}" for number in range(1000)]
    table = pa.table({"key": keys, "value": [key.encode() for key in keys]})
    with Producer(bootstrap_servers=bootstrap) as producer:
        before = producer.send(topic, b"before", partition=0)
        done = producer.send_table(topic, table, key="key").result(30)
        assert before.result(0).offset == 0, "what was sent before the table is stored before it"
        assert done.rows == 1000
        assert sum(last - first + 1 for first, last in done.offsets.values()) == 1000
    for record in read_all(bootstrap, topic, 1001):
        if record.key is not None:
            assert record.partition == partition_of(record.key, 5)
            assert record.key == record.value


def test_a_table_too_large_for_its_topic_is_split(bootstrap: str, new_topic: NewTopic) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = new_topic(max_message_bytes="2000")
    table = pa.table({"value": [b"%05d" % number * 10 for number in range(500)]})
    with Producer(bootstrap_servers=bootstrap) as producer:
        done = producer.send_table(topic, table)
        assert done.result(30).offsets == {0: (0, 499)}
        assert done.done()
    assert [record.value for record in read_all(bootstrap, topic, 500)] == table["value"].to_pylist()


def test_a_table_that_does_not_fit_into_memory_goes_piece_by_piece(
    bootstrap: str, new_topic: NewTopic
) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = new_topic(2)
    table = pa.table({"value": [bytes(1000)] * 2000})
    settings = {"buffer_memory": 200_000, "max_request_size": 50_000}
    with Producer(bootstrap_servers=bootstrap, **settings) as producer:  # type: ignore[arg-type]
        assert producer.send_table(topic, table).result(60).rows == 2000
        with pytest.raises(Refused) as refused:
            producer.send_table(topic, pa.table({"value": [bytes(60_000)]}))
        assert refused.value.code is Code.MESSAGE_TOO_LARGE


def test_an_async_producer_is_the_same_producer(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(3)

    async def main() -> list[int]:
        async with AsyncProducer(bootstrap_servers=bootstrap, linger_ms=1) as producer:
            first = await (await producer.send(topic, b"one", partition=1))
            futures = [await producer.send(topic, b"%d" % number, partition=1) for number in range(500)]
            offsets = [int((await future).offset) for future in futures]
            await producer.flush()
            assert first.offset == 0
            with pytest.raises(BarnabasError, match="bytes or None"):
                await producer.send(topic, "text")
            assert len(await producer.partitions_for(topic)) == 3
            return offsets

    assert asyncio.run(main()) == list(range(1, 501))


def test_an_async_producer_lets_others_run_while_it_waits_for_room(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()

    async def main() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        async with AsyncProducer(
            bootstrap_servers=bootstrap, buffer_memory=20_000, batch_size=1000
        ) as producer:
            futures = [await producer.send(topic, bytes(900)) for _ in range(300)]
            for future in futures:
                await future
        counting.cancel()
        return turns

    assert asyncio.run(main()) > 10


def test_a_producer_that_is_not_closed_delivers_when_the_program_ends(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    program = (
        "from barnabas import Producer\n"
        f"producer = Producer(bootstrap_servers={bootstrap!r}, linger_ms=60_000)\n"
        f"producer.send({topic!r}, b'last words')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert [record.value for record in read_all(bootstrap, topic, 1)] == [b"last words"]


def test_a_forked_process_is_told_to_make_a_producer_of_its_own(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer:
        producer.send(topic, b"before")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            for action in (lambda: producer.send(topic, b"lost?"), producer.flush):
                try:
                    action()
                except BarnabasError as error:
                    os.write(writing, f"{error}\n".encode())
            producer.close()
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading) as said:
            assert said.read().count("made before the process forked") == 2
        assert producer.send(topic, b"after").result(10).offset == 1


def test_what_is_sent_after_closing_is_refused(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = Producer(bootstrap_servers=bootstrap)
    producer.send(topic, b"").result(10)
    producer.close()
    for action in (
        lambda: producer.send(topic, b""),
        lambda: producer.send_table(topic, None),
        lambda: producer.partitions_for(topic),
    ):
        with pytest.raises(BarnabasError, match="closed"):
            action()


@pytest.mark.parametrize("linger_ms", [0, 1])
def test_threads_that_interrupt_each_other_all_the_time_lose_nothing(
    bootstrap: str, new_topic: NewTopic, linger_ms: int
) -> None:
    """Records without headers are appended without a lock: every future must still tell where its record is."""
    topic, threads, each = new_topic(2), 4, 2000
    sent: list[dict[bytes, Sent]] = [{} for _ in range(threads)]
    interval = sys.getswitchinterval()
    with Producer(bootstrap_servers=bootstrap, linger_ms=linger_ms, batch_size=2000) as producer:

        def work(name: int) -> None:
            for number in range(each):
                value = b"%d %d" % (name, number)
                headers = {"n": b"1"} if number % 50 == 0 else None
                key = b"key" if number % 3 == 0 else None
                sent[name][value] = producer.send(topic, value, key=key, headers=headers)

        try:
            sys.setswitchinterval(1e-6)
            workers = [threading.Thread(target=work, args=(name,)) for name in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        finally:
            sys.setswitchinterval(interval)
        producer.flush(30)
        told = {
            (place.partition, place.offset): value
            for one in sent
            for value, future in one.items()
            for place in [future.result(0)]
        }
    found = {
        (record.partition, record.offset): record.value
        for record in read_all(bootstrap, topic, threads * each)
    }
    assert len(found) == threads * each
    assert told == found


def test_a_future_is_itself_and_tells_where_it_is(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer:
        first, second = producer.send(topic, b"1"), producer.send(topic, b"1")
        assert len({first, second}) == 2
        assert first == first
        assert first != second
        assert repr(first) == f"<Sent to {topic}-0: on its way>"
        second.result(10)
        assert repr(second) == f"<Sent to {topic}-0: offset 1>"


def claimed(producer: Producer, topic: str) -> tuple[list[Any], Any]:
    """As if a send to the topic's only partition were interrupted: no other thread can reach its batch."""
    claim = producer._accumulator.topics[topic].partitions[0].claim
    return claim, claim.pop()


def test_a_signal_handler_may_send_while_a_send_is_interrupted(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer:
        producer.send(topic, b"0")
        claim, batch = claimed(producer, topic)
        within = [producer.send(topic, b"%d" % number) for number in (2, 3)]
        with pytest.raises(TimedOut):
            producer.flush(0.2)  # a handler that flushes waits for what is interrupted, but not for ever
        # The interrupted send goes on, and ends.
        batch.values.append(b"1")
        batch.timestamps.append(batch.timestamps[0])
        claim.append(batch)
        late = [producer.send(topic, b"%d" % number) for number in range(4, 60)]
        producer.flush(10)
        assert [each.result(0).offset for each in within + late] == list(range(2, 60))
    assert [int(record.value or b"") for record in read_all(bootstrap, topic, 60)] == list(range(60))


def test_a_send_that_never_went_on_costs_the_records_of_its_batch_and_says_so(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap, delivery_timeout_ms=3000, linger_ms=1500) as producer:
        lost = producer.send(topic, b"lost")
        claimed(producer, topic)
        next_one = producer.send(topic, b"next")
        with pytest.raises(TimedOut, match=r"delivery\.timeout\.ms"):
            lost.result(30)
        assert isinstance(next_one.exception(10), TimedOut | None)
        assert producer.send(topic, b"later").result(10).offset >= 0


def test_half_a_record_is_none(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer:
        producer.send(topic, b"whole", key=b"k")
        claim, batch = claimed(producer, topic)
        batch.keys.append(b"half")
        claim.append(batch)
        producer.flush(10)
    (record,) = read_all(bootstrap, topic, 1)
    assert (record.key, record.value) == (b"k", b"whole")


def test_a_send_that_waits_for_room_is_told_when_the_producer_is_closed(new_topic: NewTopic) -> None:
    with Broker() as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap, buffer_memory=100_000, batch_size=50_000)
        producer.send("t", b"x").result(10)
    told: list[BaseException] = []
    waits = threading.Event()

    def work() -> None:
        try:
            for _ in range(4):
                waits.set()
                producer.send("t", b"x" * 40_000)
        except BarnabasError as error:
            told.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    waits.wait(10)
    eventually(lambda: producer._accumulator.starving, "a thread to wait for room")
    with pytest.raises(BarnabasError):
        producer.close(0.1)
    thread.join(10)
    assert not thread.is_alive()
    assert [str(each) for each in told] == ["The producer is closed."]
    with pytest.raises(BarnabasError, match="closed"):
        producer.send("t", b"after")


def test_a_table_with_a_row_too_large_leaves_nothing_behind(bootstrap: str, new_topic: NewTopic) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = new_topic()
    table = pa.table({"value": [bytes(1000)] * 25_000 + [bytes(60_000)]})
    with Producer(bootstrap_servers=bootstrap, max_request_size=50_000) as producer:
        with pytest.raises(
            MessageTooLarge, match="Row 25000 of the table takes 60011 bytes, but 49939 is the most"
        ):
            producer.send_table(topic, table)
        assert producer.send(topic, b"first").result(30).offset == 0


def test_the_first_use_of_a_topic_waits_for_no_pause(bootstrap: str, new_topic: NewTopic) -> None:
    topics = [new_topic() for _ in range(10)]
    began = time.monotonic()
    with Producer(bootstrap_servers=bootstrap, retry_backoff_ms=20_000) as producer:
        for topic in topics:
            producer.send(topic, topic.encode()).result(10)
    with Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", retry_backoff_ms=20_000
    ) as consumer:
        for topic in topics:  # assigned one after another, by one consumer
            consumer.assign([TopicPartition(topic, 0)])
            (record,) = eventually(lambda: consumer.poll(5), "the record")
            assert record.value == topic.encode()
    assert time.monotonic() - began < 20
