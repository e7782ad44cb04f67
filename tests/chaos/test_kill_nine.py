"""Kills the broker under load, again and again, and holds it to what it acknowledged."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.wire.batch import decode_batch
from tests import segments
from tests.chaos.load import Load
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROUNDS = 50
PARTITIONS = 4
SEED = 20_240_603
# A segment of the smallest size allowed, so that kills also meet segments being rolled.
SETTINGS = {"segment.bytes": "1048576", "retention.ms": "-1"}


class Survived(NamedTuple):
    """What is left after all rounds: the stopped broker's data and what its producer was told."""

    data: Path
    topic: str
    written: int
    acknowledged: dict[int, tuple[int, int]]


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survived]:
    chance = random.Random(SEED)
    broker = BrokerProcess(tmp_path_factory.mktemp("killed") / "data")
    broker.start()
    try:
        with ConfluentAdapter(broker.bootstrap) as admin:
            admin.create_topic("killed", PARTITIONS, SETTINGS)
        with Load(broker.bootstrap, "killed", PARTITIONS) as load:
            for _ in range(ROUNDS):
                load.wait_for_acknowledged(chance.randrange(1, 4000), within_s=120)
                broker.kill()
                broker.start()
                segments.check_all(broker.data, growing=True)
            load.finish(within_s=120)
        assert broker.stop() == 0, broker.said()
        yield Survived(broker.data, "killed", load.written, load.acknowledged)
    finally:
        broker.close()


def test_no_acknowledged_record_is_lost_none_is_there_twice_and_order_is_kept(survived: Survived) -> None:
    found: dict[int, tuple[int, int]] = {}
    for partition in range(PARTITIONS):
        numbers = []
        folder = segments.partition(survived.data, f"{survived.topic}-{partition}")
        for _, batch in segments.batches(folder):
            for record in decode_batch(batch):
                assert record.key is not None
                numbers.append(int(record.key))
                found[int(record.key)] = (partition, record.offset)
        assert numbers == list(range(partition, survived.written, PARTITIONS))
    assert len(survived.acknowledged) == survived.written
    assert found == survived.acknowledged


@pytest.mark.java
def test_kafka_finds_every_segment_and_index_valid(survived: Survived, kafka_libs: Path) -> None:
    said = segments.dump(kafka_libs, survived.data)
    assert said.count("isvalid: true") >= ROUNDS
