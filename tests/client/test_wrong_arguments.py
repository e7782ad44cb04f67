"""A wrong argument is told of at once, and costs nothing else anything."""

import copy
import math
import os
import pickle
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from barnabas import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    NewTopic,
    Producer,
    Resource,
    TopicPartition,
)
from barnabas.client.producer.batches import section_of
from barnabas.errors import BarnabasError
from barnabas.testing import Broker
from tests.deadline import eventually

PARTITION = TopicPartition("one", 0)
SOON_S = 20.0
"""Far less than the time-outs that these mistakes used to wait for."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("one", partitions=1)
        yield broker.bootstrap


@pytest.mark.parametrize("timestamp", ["now", 1.7e12, 1 << 70, -5, b"1"])
@pytest.mark.parametrize("headers", [None, {"a": b"1"}])
def test_a_timestamp_that_is_none_is_refused_and_the_producer_goes_on(
    bootstrap: str, timestamp: Any, headers: Any
) -> None:
    with Producer(bootstrap, linger_ms=0) as producer:
        producer.send("one", b"before").result(SOON_S)
        with pytest.raises(BarnabasError, match="milliseconds since 1970"):
            producer.send("one", b"bad", timestamp=timestamp, headers=headers)
        assert producer.send("one", b"after", timestamp=5).result(SOON_S).timestamp == 5


def test_what_cannot_be_written_fails_alone(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a record ever get as far as that: the others of its partition are still numbered without a gap."""
    real = section_of

    def picky(batches: Any) -> Any:
        if any(b"unwritable" in batch.values for batch in batches):
            raise TypeError("this cannot be written")
        return real(batches)

    monkeypatch.setattr("barnabas.client.producer.sender.section_of", picky)
    with Producer(bootstrap, linger_ms=0, delivery_timeout_ms=60_000) as producer:
        first = producer.send("one", b"first").result(SOON_S)
        with pytest.raises(BarnabasError, match="this cannot be written"):
            producer.send("one", b"unwritable").result(SOON_S)
        assert [producer.send("one", b"later").result(SOON_S).offset - first.offset for _ in range(3)] == [
            1,
            2,
            3,
        ]


def test_a_negative_offset_does_not_erase_what_was_committed(bootstrap: str) -> None:
    with Consumer(bootstrap_servers=bootstrap, group_id="negative", enable_auto_commit=False) as consumer:
        consumer.assign([PARTITION])
        consumer.commit({PARTITION: 7})
        for wrong in ({PARTITION: -5}, {PARTITION: "7"}, [PARTITION]):
            with pytest.raises(BarnabasError, match="commit"):
                consumer.commit(wrong)  # type: ignore[arg-type]
            with pytest.raises(BarnabasError, match="commit"):
                consumer.commit_async(wrong)  # type: ignore[arg-type]
        assert consumer.committed([PARTITION]) == {PARTITION: 7}
    with Admin(bootstrap) as admin, pytest.raises(BarnabasError, match="0 or more"):
        admin.alter_group_offsets("negative", {PARTITION: -5})


def test_what_has_no_name_is_not_waited_for(bootstrap: str) -> None:
    begun = time.monotonic()
    with pytest.raises(BarnabasError, match="client_id cannot be 5: it must be text"):
        Producer(bootstrap, client_id=5)  # type: ignore[arg-type]
    with Admin(bootstrap) as admin:
        mistakes: list[dict[str, Any]] = [{"name": 5}, {"name": "y", "configs": {"retention.ms": 5}}]
        for wrong in mistakes:
            with pytest.raises(BarnabasError, match="text"):
                admin.create_topic(**wrong)
    assert time.monotonic() - begun < SOON_S


def test_a_closed_consumer_says_so_at_once(bootstrap: str) -> None:
    consumer = Consumer(bootstrap_servers=bootstrap, group_id="closed")
    consumer.close()
    begun = time.monotonic()
    for ask in (consumer.end_offsets, consumer.committed):
        with pytest.raises(BarnabasError, match="closed"):
            ask([PARTITION])
    assert time.monotonic() - begun < SOON_S


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


TEXT = "it must be text"
WHOLE = "it must be a whole number"


@pytest.mark.parametrize(
    ("client", "settings", "why"),
    [
        (
            Producer,
            {"compression_type": None},
            "compression_type cannot be None: it must be text, such as 'none'",
        ),
        (
            Producer,
            {"linger_ms": math.nan},
            "linger_ms cannot be nan: it must be a number, 0 or more, such as 5",
        ),
        (
            Producer,
            {"partitioner": "murmur2"},
            "partitioner cannot be 'murmur2': it must be a function or None",
        ),
        (Producer, {"value_serializer": []}, "value_serializer cannot be []"),
        (Producer, {"batch_size": 1.5}, WHOLE),
        (Producer, {"request_timeout_ms": 1 << 40}, "a whole number of 32 bits"),
        (Producer, {"enable_idempotence": "false"}, "it must be True or False or None"),
        (Producer, {"linger.ms": 5}, "Producer has no setting 'linger.ms': did you mean 'linger_ms'?"),
        (Consumer, {"group_id": 5}, "group_id cannot be 5: it must be text or None"),
        (Consumer, {"session_timeout_ms": "x"}, f"session_timeout_ms cannot be 'x': {WHOLE}"),
        (Consumer, {"default_api_timeout_ms": "x"}, f"default_api_timeout_ms cannot be 'x': {WHOLE}"),
        (
            Consumer,
            {"enable_auto_commit": "false"},
            "enable_auto_commit cannot be 'false': it must be True or False",
        ),
        (Consumer, {"connections_max_idle_ms": -1}, "1 or more"),
        (Consumer, {"auto_offset_reset": []}, "[]: it must be earliest, latest or none."),
        (Consumer, {"isolation_level": "x"}, "'x': it must be read_uncommitted or read_committed."),
        (Consumer, {"partition_assignment_strategy": [5]}, "it must be text or a list (each text)"),
        (Admin, {"request_timeout_ms": "x"}, f"request_timeout_ms cannot be 'x': {WHOLE}"),
        (Admin, {"foo": 3}, "Admin has no setting 'foo'"),
        *(
            (client, {"bootstrap_servers": wrong}, f"bootstrap_servers cannot be {wrong!r}: {TEXT} or a list")
            for client in (Producer, Consumer, Admin)
            for wrong in (None, 5, ["a:1", 5], b"a:1")
        ),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused_and_leaves_nothing_open(
    bootstrap: str, client: type, settings: dict[str, Any], why: str
) -> None:
    before = open_files()
    with pytest.raises(BarnabasError, match=re.escape(why)):
        client(**{"bootstrap_servers": bootstrap} | settings)
    eventually(lambda: open_files() <= before, "what was opened to be closed", SOON_S)


@pytest.mark.parametrize(
    "settings", [{"value_deserializer": "yaml"}, {"partition_assignment_strategy": "lucky"}]
)
def test_a_consumer_that_cannot_be_leaves_nothing_open(bootstrap: str, settings: dict[str, Any]) -> None:
    before = open_files()
    with pytest.raises(BarnabasError):
        Consumer(bootstrap_servers=bootstrap, **settings)
    eventually(lambda: open_files() <= before, "what was opened to be closed", SOON_S)


def test_topics_are_names_and_given_one_by_one(bootstrap: str) -> None:
    for wrong in (5, ["one"], None):
        with pytest.raises(
            BarnabasError, match=r"topics cannot be .*: it must be text.*Consumer\(\*topics\)"
        ):
            Consumer(wrong, bootstrap_servers=bootstrap, group_id="names")  # type: ignore[arg-type]


class Deaf:
    """Nothing a listener should be."""


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda consumer: consumer.subscribe(5), "subscribe: topics cannot be 5: it must be text or a list"),
        (lambda consumer: consumer.subscribe(["one", 5]), "subscribe: topics cannot be ['one', 5]"),
        (lambda consumer: consumer.subscribe(pattern=5), "subscribe: pattern cannot be 5: it must be text"),
        (lambda consumer: consumer.subscribe(pattern=re.compile(b"o.*")), "is of bytes"),
        (lambda consumer: consumer.subscribe("one", listener=Deaf()), "has none"),
        (lambda consumer: consumer.assign("one"), "as TopicPartition('orders', 0)"),
        (lambda consumer: consumer.assign(PARTITION), "a list (each a partition"),
        (lambda consumer: consumer.assign({PARTITION: -1}), "each value a whole number, 0 or more"),
        (
            lambda consumer: consumer.seek(PARTITION, 1.5),
            "seek: offset cannot be 1.5: it must be a whole number",
        ),
        (lambda consumer: consumer.seek("one", 1), "seek: partition cannot be 'one'"),
        (lambda consumer: consumer.seek_to_time("now"), WHOLE),
        (lambda consumer: consumer.pause([PARTITION]), "given by itself: pause(*partitions)"),
        (lambda consumer: consumer.position("one"), "as TopicPartition('orders', 0)"),
        (lambda consumer: consumer.end_offsets(object()), "end_offsets: partitions cannot be <object"),
        (lambda consumer: consumer.end_offsets([("one", "0")]), "as TopicPartition('orders', 0)"),
        (lambda consumer: consumer.offsets_for_times([PARTITION]), "it must be a mapping"),
        (lambda consumer: consumer.partitions_for(["one"]), TEXT),
        (
            lambda consumer: consumer.poll(max_records=-1),
            "poll: max_records cannot be -1: it must be a whole number",
        ),
        (lambda consumer: consumer.poll(max_records=0), "1 or more"),
        (lambda consumer: consumer.poll("x"), "poll: timeout cannot be 'x': it must be a number"),
        (lambda consumer: consumer.poll(math.nan), "poll: timeout cannot be nan"),
        (lambda consumer: consumer.poll_arrow(columns="value"), "a list (each text)"),
        (lambda consumer: consumer.poll_arrow(max_bytes=0), "1 or more"),
    ],
)
def test_what_a_consumer_cannot_do_is_refused(bootstrap: str, call: Callable[[Any], Any], why: str) -> None:
    with Consumer(bootstrap_servers=bootstrap, group_id="wrong") as consumer:
        begun = time.monotonic()
        with pytest.raises(BarnabasError, match=re.escape(why)):
            call(consumer)
        assert time.monotonic() - begun < SOON_S


def test_partitions_may_be_any_pairs_of_anything_one_can_go_through(bootstrap: str) -> None:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign(each for each in [PARTITION])
        assert consumer.assignment() == {PARTITION}
        pairs: Any = iter([("one", 0)])
        assert consumer.end_offsets(pairs) == consumer.end_offsets([PARTITION])


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda admin: admin.delete_topics("one"), "delete_topics: names cannot be 'one': it must be a list"),
        (lambda admin: admin.delete_groups("g"), "a list (each text)"),
        (lambda admin: admin.describe_topics([[]]), "a list (each text) or None"),
        (lambda admin: admin.create_topics(["one"]), "a list (each a NewTopic)"),
        (lambda admin: admin.create_topic("two", partitions="3"), WHOLE),
        (lambda admin: admin.create_topic("two", configs=["a"]), "it must be a mapping"),
        (lambda admin: admin.describe_group([]), TEXT),
        (lambda admin: admin.describe_configs("one"), "it must be a Resource"),
        (lambda admin: admin.alter_configs(Resource.topic("one"), ["a"]), "it must be a mapping"),
        (lambda admin: admin.list_offsets({"one": 1}), "each key a partition"),
        (lambda admin: admin.delete_records([PARTITION]), "it must be a mapping"),
        (lambda admin: admin.describe_producers("one"), "a list (each a partition"),
        (lambda admin: admin.list_group_offsets("g", "one"), "a list (each a partition"),
        (lambda admin: admin.reset_group_offsets("g", [object()], to=5), "each text or a partition"),
        (lambda admin: admin.reset_group_offsets("g", ["one"], to_offset="x"), WHOLE),
    ],
)
def test_a_wrong_argument_of_admin_is_refused(bootstrap: str, call: Callable[[Any], Any], why: str) -> None:
    with Admin(bootstrap) as admin:
        begun = time.monotonic()
        with pytest.raises(BarnabasError, match=re.escape(why)):
            call(admin)
        assert time.monotonic() - begun < SOON_S
        assert admin.list_offsets({("one", 0): -2})[PARTITION].offset == 0  # type: ignore[dict-item]


VALUES = pa.table({"value": [b"a"]})


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda producer: producer.send(["one"], b""), "A topic is a name, not ['one']"),
        (lambda producer: producer.send(5, b""), "A topic is a name, not 5"),
        (lambda producer: producer.send("one", b"", partition="0"), "has no partition '0', only 1"),
        (lambda producer: producer.send("one", b"", partition=0.0), "has no partition 0.0, only 1"),
        (lambda producer: producer.send("one", b"", headers=5), "Headers are a mapping, or pairs"),
        (lambda producer: producer.send_table("one", VALUES, value=None), "send_table: value cannot be None"),
        (lambda producer: producer.send_table(["one"], VALUES), "send_table: topic cannot be ['one']"),
        (lambda producer: producer.partitions_for(["one"]), "A topic is a name"),
        (lambda producer: producer.flush("soon"), "flush: timeout cannot be 'soon'"),
    ],
)
def test_what_cannot_be_sent_is_refused(bootstrap: str, call: Callable[[Any], Any], why: str) -> None:
    with Producer(bootstrap) as producer:
        for _ in range(2):  # on the long way, then on the short one
            with pytest.raises(BarnabasError, match=re.escape(why)):
                call(producer)
            assert producer.send("one", b"").result(SOON_S).partition == 0


@pytest.mark.parametrize("chosen", [None, "0", 0.0, 1, -1])
def test_a_partitioner_that_talks_nonsense_is_told_so(bootstrap: str, chosen: Any) -> None:
    why = f"The partitioner chose partition {chosen!r} of topic 'one', which has 1"
    with (
        Producer(bootstrap, partitioner=lambda topic, key, count: chosen) as producer,
        pytest.raises(BarnabasError, match=why),
    ):
        producer.send("one", b"")


def test_for_ever_is_a_time_to_wait(bootstrap: str) -> None:
    with Producer(bootstrap, linger_ms=100) as producer, ThreadPoolExecutor(8) as threads:

        def send_and_wait(_: int) -> str:
            return producer.send("one", b"x").result(float("inf")).topic

        # Of several threads that wait one drives the loop, and the others wait for it.
        assert set(threads.map(send_and_wait, range(24))) == {"one"}


HALF = "\ud800"
"""Half of a surrogate pair: text to Python alone."""


def test_a_topic_that_cannot_be_written_costs_the_other_topics_nothing(bootstrap: str) -> None:
    with Producer(bootstrap, linger_ms=0) as producer:
        with pytest.raises(BarnabasError, match="A topic is a name"):
            producer.send(HALF, b"x")
        assert producer.send("fresh-one", b"x").result(SOON_S).offset == 0


def test_a_header_that_cannot_be_written_costs_the_other_records_nothing(bootstrap: str) -> None:
    with Producer(bootstrap, linger_ms=60_000) as producer:
        good = producer.send("one", b"x", headers={"name": b""})
        with pytest.raises(BarnabasError, match="A header is a name"):
            producer.send("one", b"x", headers={HALF: b""})
        good.result(SOON_S)


def test_a_consumer_is_told_of_a_topic_that_cannot_be_written(bootstrap: str) -> None:
    with pytest.raises(BarnabasError, match="must be text"):
        Consumer(HALF, bootstrap_servers=bootstrap, group_id="readers")


def test_a_handler_that_interrupts_a_send_is_told_that_it_cannot_use_the_producer(bootstrap: str) -> None:
    with Producer(bootstrap, linger_ms=0) as producer:
        producer.send("one", b"x").result(SOON_S)
        # As the handler of a signal finds it that comes while a send opens a batch.
        with producer._lock:
            for action in (
                lambda: producer.send("one", b"x", headers={"a": b""}),
                producer.flush,
                producer.close,
            ):
                with pytest.raises(BarnabasError, match="in the midst of a send"):
                    action()
        producer.send("one", b"x").result(SOON_S)


def test_no_number_is_no_time_to_wait(bootstrap: str) -> None:
    with Producer(bootstrap, linger_ms=60_000) as producer:
        sent = producer.send("one", b"x")
        with pytest.raises(BarnabasError, match="not nan"):
            sent.result(float("nan"))
        assert sent.result(30).topic == "one"


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"partitions": "4"}, "partitions cannot be '4': it must be a whole number"),
        ({"partitions": 2.5}, "a whole number"),
        ({"partitions": 1 << 40}, "32 bits"),
        ({"partitions": -2}, "-1 or more"),
        ({"replication_factor": 1 << 16}, "replication_factor cannot be 65536"),
        ({"configs": {"retention.ms": 5}}, "each value text"),
        ({"configs": "retention.ms=5"}, "a mapping"),
        ({"assignment": {0: 1}}, "each value a list"),
        ({"partition": 4}, "partitions"),
    ],
)
def test_a_wish_for_a_topic_is_looked_at_where_it_is_made(wish: Any, words: str) -> None:
    with pytest.raises(BarnabasError, match=re.escape(words)):
        NewTopic("two", **wish)


def test_a_topic_that_is_wished_for_twice_is_not_made_as_the_last_wish_says(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        with pytest.raises(BarnabasError, match="'two' is wished for twice"):
            admin.create_topics([NewTopic("two", 1), NewTopic("two", 2)])
        assert "two" not in admin.list_topics()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
def test_what_has_connections_cannot_be_copied_or_sent_to_another_process(
    bootstrap: str, kind: Any, duplicate: Callable[[Any], Any]
) -> None:
    """Above all by Spark, which pickles whatever a function of its user mentions."""
    with (
        kind(bootstrap_servers=bootstrap) as one,
        pytest.raises(BarnabasError, match=f"A {kind.__name__} cannot be copied or pickled"),
    ):
        duplicate(one)


@pytest.mark.parametrize("kind", [AsyncProducer, AsyncConsumer])
def test_nor_can_its_like_for_asyncio(kind: Any) -> None:
    with pytest.raises(BarnabasError, match=f"A {kind.__name__} cannot be copied or pickled"):
        pickle.dumps(kind("localhost:1"))
