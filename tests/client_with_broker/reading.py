"""Owns how tests of the suite read: a number of records, whole, with a deadline."""

from barnabas import Consumer, ConsumerRecord, TopicPartition
from tests.deadline import Deadline


def poll_until(consumer: Consumer, count: int, within: float = 60) -> list[ConsumerRecord]:
    """Exactly this many records, in the order they came."""
    found: list[ConsumerRecord] = []
    deadline = Deadline(within, f"{count} records")
    while len(found) < count:
        found += consumer.poll(timeout=deadline.left(1.0), max_records=count - len(found))
    return found


def read_topic(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[ConsumerRecord]:
    """This many records of a topic, and a check that there are no more."""
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign(wanted)
        consumer.seek_to_beginning()
        assert sum(consumer.end_offsets(wanted).values()) == count
        return poll_until(consumer, count)
