"""Promises of `barnabas.testing.Cluster`: real brokers that can be killed, paused, cut off and started again."""

from collections.abc import Iterator

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.errors import BarnabasError
from barnabas.testing import Cluster
from barnabas.types import TopicPartition

pytestmark = [pytest.mark.java, pytest.mark.slow(seconds=30)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as started:
        yield started


def leader_of(cluster: Cluster, topic: str) -> int:
    with Admin(cluster.bootstrap) as admin:
        return admin.describe_topic(topic).partitions[0].leader


def send(cluster: Cluster, topic: str, *values: bytes) -> None:
    with Producer(cluster.bootstrap, acks="all") as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush()


def read(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < count:
            batch = consumer.poll(timeout=30.0)
            assert batch, f"{len(found)} of {count} records came"
            found += [record.value or b"" for record in batch]
    return found


def test_brokers_see_one_another_and_topics_get_three_replicas(cluster: Cluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        assert [broker.id for broker in admin.describe_cluster().brokers] == [1, 2, 3]
        admin.create_topic("orders", partitions=6)
        topic = admin.describe_topic("orders")
    assert all(sorted(partition.replicas) == [1, 2, 3] for partition in topic.partitions)
    assert {partition.leader for partition in topic.partitions} == {1, 2, 3}


def test_a_killed_leader_costs_nothing_that_was_acknowledged(cluster: Cluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("killed", partitions=1)
    send(cluster, "killed", b"before")
    leader = leader_of(cluster, "killed")
    cluster.kill(leader)
    send(cluster, "killed", b"without")
    cluster.restart(leader)
    cluster.wait_until_in_sync()
    assert read(cluster, "killed", 2) == [b"before", b"without"]


def test_a_broker_is_stopped_cleanly_and_comes_back(cluster: Cluster) -> None:
    assert cluster.stop(2) == 0
    cluster.restart(2)
    cluster.wait_until_in_sync()


def test_a_paused_broker_goes_on(cluster: Cluster) -> None:
    cluster.pause(3)
    cluster.resume(3)
    cluster.wait_until_in_sync()


def test_links_are_cut_only_where_there_are_proxies(cluster: Cluster) -> None:
    with pytest.raises(BarnabasError, match=r"say Cluster\(links=True\)"):
        cluster.cut(1)


def test_a_broker_that_is_cut_off_is_missed_and_comes_back() -> None:
    with Cluster(
        3, {"zookeeper.session.timeout.ms": 2000, "replica.lag.time.max.ms": 2000}, links=True
    ) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic("cut", partitions=1, assignment={0: [1, 2, 3]})
        send(cluster, "cut", b"before")
        cluster.cut(3, store=True)
        send(cluster, "cut", b"without")
        cluster.heal()
        cluster.wait_until_in_sync()
        assert read(cluster, "cut", 2) == [b"before", b"without"]
