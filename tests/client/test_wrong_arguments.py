"""A wrong argument is told of at once, and costs nobody else anything."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer, TopicPartition
from barnabas.client.batches import section_of
from barnabas.errors import BarnabasError
from barnabas.testing import Broker

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
            raise TypeError("nobody can write this")
        return real(batches)

    monkeypatch.setattr("barnabas.client.sender.section_of", picky)
    with Producer(bootstrap, linger_ms=0, delivery_timeout_ms=60_000) as producer:
        first = producer.send("one", b"first").result(SOON_S)
        with pytest.raises(BarnabasError, match="nobody can write this"):
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
    with pytest.raises(BarnabasError, match=r"client\.id"):
        Producer(bootstrap, client_id=5)  # type: ignore[arg-type]
    with Admin(bootstrap) as admin:
        mistakes: list[dict[str, Any]] = [{"name": 5}, {"name": "y", "configs": {"retention.ms": 5}}]
        for wrong in mistakes:
            with pytest.raises(BarnabasError, match="cannot be written"):
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
