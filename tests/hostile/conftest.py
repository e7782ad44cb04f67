"""Owns the broker that the hostile tests attack: a process of its own, so that its memory can be measured."""

from collections.abc import Iterator

import pytest

from tests.hostile import corpus, neighbour
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.process import BrokerProcess


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # Records of these tests are old: in the fifth minute retention would come for them.
    broker = BrokerProcess(tmp_path_factory.mktemp("victim") / "data", ["log.retention.ms=-1"])
    broker.start()
    with ConfluentAdapter(broker.bootstrap) as client:
        for topic in (corpus.TOPIC, neighbour.TOPIC):
            client.create_topic(topic, 1, {"retention.ms": "-1"})
    yield broker
    broker.close()
