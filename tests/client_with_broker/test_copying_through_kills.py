"""Promises of transactions in a cluster: a copier neither loses nor doubles while its brokers are killed."""

import threading
from collections.abc import Iterator

import pytest

from barnabas import Admin, Consumer, Producer, TopicPartition, errors
from barnabas.testing import Cluster
from tests.deadline import Deadline

pytestmark = pytest.mark.slow(seconds=40)

PARTITIONS = 2
TURN = 500
VICTIMS = ["copy", "__transaction_state", "__consumer_offsets", "copy"]
"""In each turn the leader of the first partition of one of these."""
RECORDS = TURN * len(VICTIMS)
SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as found:
        yield found


def fill(bootstrap: str, numbers: range) -> None:
    with Producer(bootstrap) as producer:
        for number in numbers:
            producer.send("source", b"%d" % number, partition=number % PARTITIONS)


class Copier:
    """Copies from `source` to `copy` in transactions until all is copied; a producer that is fenced is replaced."""

    def __init__(self, bootstrap: str) -> None:
        self.copied = 0
        self.failure: BaseException | None = None
        self.more = threading.Condition()
        self._bootstrap = bootstrap
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        deadline = Deadline(120, f"{count} copies")
        with self.more:
            while self.copied < count and self.failure is None:
                self.more.wait(deadline.left())
        if self.failure is not None:
            raise self.failure

    def join(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while self.copied < RECORDS:
                try:
                    self._copy()
                except errors.ProducerFenced:
                    continue  # its transaction took too long while brokers were away
        except BaseException as why:
            self.failure = why
        with self.more:
            self.more.notify_all()

    def _copy(self) -> None:
        with (
            Producer(self._bootstrap, transactional_id="copier", retry_backoff_ms=10) as producer,
            Consumer(
                "source",
                bootstrap_servers=self._bootstrap,
                group_id="copiers",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                max_poll_records=20,
            ) as consumer,
        ):
            producer.init_transactions()
            while self.copied < RECORDS:
                records = consumer.poll(1.0)
                if not records:
                    # The answer to a commit may have been lost with its producer.
                    self._tell(sum(consumer.committed(consumer.assignment()).values()))
                    continue
                try:
                    with producer.transaction() as transaction:
                        for record in records:
                            transaction.send("copy", record.value, partition=record.partition)
                        transaction.send_offsets(consumer)
                except errors.TransactionAbortable:
                    consumer.seek_to_committed()
                    continue
                self._tell(self.copied + len(records))

    def _tell(self, copied: int) -> None:
        with self.more:
            self.copied = copied
            self.more.notify_all()


def leader(bootstrap: str, topic: str) -> int:
    with Admin(bootstrap) as admin:
        return admin.describe_topic(topic).partitions[0].leader


def committed(bootstrap: str) -> list[list[int]]:
    places = [TopicPartition("copy", number) for number in range(PARTITIONS)]
    found: list[list[int]] = [[] for _ in places]
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning()
        with Consumer(bootstrap_servers=bootstrap) as everything:
            ends = everything.end_offsets(places)
        deadline = Deadline(120, "the end of what is stored to be decided")
        while any(consumer.position(place) < ends[place] for place in places):
            for record in consumer.poll(deadline.left(0.2)):
                found[record.partition].append(int(record.value))
    return found


def test_a_copier_outlives_leaders_and_coordinators(cluster: Cluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        for topic in ("source", "copy"):
            admin.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    copier = Copier(cluster.bootstrap)
    try:
        for turn, topic in enumerate(VICTIMS):
            first = turn * TURN
            fill(cluster.bootstrap, range(first, first + TURN))
            copier.wait_for(first + TURN // 5)
            victim = leader(cluster.bootstrap, topic)
            cluster.kill(victim)
            copier.wait_for(first + TURN)
            cluster.restart(victim)
            cluster.wait_until_in_sync()
    finally:
        copier.join()
    assert committed(cluster.bootstrap) == [
        list(range(number, RECORDS, PARTITIONS)) for number in range(PARTITIONS)
    ]
