"""Proves transactions to every client: commit, abort, fencing and offsets, read by each and by ours."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from barnabas import Admin, TopicPartition
from tests.deadline import eventually
from tests.other_clients.adapters.transactions import (
    Aiokafka,
    Confluent,
    Fenced,
    Java,
    KafkaPython,
    Ours,
    Transactional,
    read_committed,
)
from tests.other_clients.topics import TopicMaker

Open: TypeAlias = Callable[[str], Transactional]
LIBRARIES = {"ours": Ours, "confluent": Confluent, "kafka-python": KafkaPython, "aiokafka": Aiokafka}


@pytest.fixture(params=[*LIBRARIES, pytest.param("java", marks=pytest.mark.java)])
def open_producer(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Open]:
    """Makes producers of one library, closed at the end."""
    made: list[Transactional] = []

    def open_one(transactional_id: str) -> Transactional:
        if request.param == "java":
            made.append(Java(request.getfixturevalue("java_client"), transactional_id))
        else:
            made.append(LIBRARIES[request.param](bootstrap, transactional_id))  # type: ignore[abstract]
        return made[-1]

    yield open_one
    for each in made:
        each.close()


@pytest.fixture
def place(bootstrap: str, new_topic: TopicMaker) -> Iterator[TopicPartition]:
    """A partition of two, in a topic of its own."""
    name = new_topic.name()
    with Admin(bootstrap) as admin:
        admin.create_topic(name, partitions=2)
        eventually(lambda: name in admin.list_topics(), f"topic {name}")
        yield TopicPartition(name, 0)
        admin.delete_topic(name)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    bootstrap: str, open_producer: Open, place: TopicPartition
) -> None:
    producer = open_producer(place.topic)
    other = TopicPartition(place.topic, 1)
    wanted: list[bytes] = []
    for number in range(6):
        values = [b"%d.%d" % (number, each) for each in range(20)]
        producer.begin()
        producer.send(place, values)
        producer.send(other, values)
        if number % 3 == 1:
            producer.abort()
        else:
            producer.commit()
            wanted += values
    for where in (place, other):
        assert producer.read_committed(where, len(wanted)) == wanted
        assert read_committed(bootstrap, where, len(wanted)) == wanted


def test_a_newer_producer_takes_over_and_the_older_one_is_told(
    bootstrap: str, open_producer: Open, place: TopicPartition
) -> None:
    zombie = open_producer(place.topic)
    zombie.begin()
    zombie.send(place, [b"of the zombie"])
    successor = open_producer(place.topic)
    successor.begin()
    successor.send(place, [b"of its successor"])
    with pytest.raises(Fenced):
        zombie.commit()
    successor.commit()
    assert read_committed(bootstrap, place, 1) == [b"of its successor"]


def test_offsets_count_when_their_transaction_does(
    bootstrap: str, open_producer: Open, place: TopicPartition
) -> None:
    producer = open_producer(place.topic)
    group = f"group-{place.topic}"

    def committed() -> int | None:
        with Admin(bootstrap) as admin:
            return admin.list_group_offsets(group).get(place)

    for offset, counts in [(3, 3), (5, 3), (8, 8)]:
        producer.begin()
        producer.send(place, [b"%d" % offset])
        producer.send_offsets(group, {place: offset})
        if offset == counts:
            producer.commit()
        else:
            producer.abort()
        eventually(lambda counts=counts: committed() == counts, f"offset {counts} to count")  # type: ignore[misc]
    assert read_committed(bootstrap, place, 2) == [b"3", b"8"]
