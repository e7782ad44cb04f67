"""Proves that what one client writes, every other reads: each writer in each codec, against each reader."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.other_clients.adapters.adapter import CODECS, ClientAdapter, Record
from tests.other_clients.adapters.aiokafka import AiokafkaAdapter
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.other_clients.adapters.kafka_python import KafkaPythonAdapter
from tests.other_clients.records import FIRST_MS, some_records
from tests.other_clients.topics import TopicMaker

COUNT = 10_000
RECORDS = some_records(COUNT, seed=2)

JAVA = pytest.param("java", marks=pytest.mark.java)
CLIENTS = ["confluent-kafka", "kafka-python", "aiokafka", JAVA]

GetClient = Callable[[str], ClientAdapter]
Written = Callable[[str, str], str]


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[GetClient]:
    """A client by name, each started once."""
    started: dict[str, ClientAdapter] = {}
    with ExitStack() as stack:

        def get(name: str) -> ClientAdapter:
            if name == "java":
                return request.getfixturevalue("java_client")
            if name not in started:
                kinds = (ConfluentAdapter, KafkaPythonAdapter, AiokafkaAdapter)
                kind = next(kind for kind in kinds if kind.name == name)
                started[name] = stack.enter_context(kind(bootstrap))
            return started[name]

        yield get


@pytest.fixture(scope="module")
def written(client: GetClient, new_topic: TopicMaker) -> Written:
    """The topic that a client has written all records to, in a codec; written once, read by everyone."""
    topics: dict[tuple[str, str], str] = {}

    def write(writer: str, codec: str) -> str:
        if (writer, codec) not in topics:
            topic = new_topic(client(writer))
            client(writer).produce(topic, 0, RECORDS, codec=codec, idempotent=True)
            topics[writer, codec] = topic
        return topics[writer, codec]

    return write


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_what_one_client_writes_another_reads(
    client: GetClient, written: Written, writer: str, codec: str, reader: str
) -> None:
    topic = written(writer, codec)
    stored = client(reader).read(topic, 0, 0, COUNT)
    assert [at for at, _ in stored] == list(range(COUNT))
    assert [record for _, record in stored] == RECORDS


@pytest.mark.parametrize("reader", CLIENTS)
def test_a_header_without_a_value_is_not_an_empty_one(
    client: GetClient, new_topic: TopicMaker, reader: str
) -> None:
    writer = client("confluent-kafka")
    topic = new_topic(writer)
    record = Record(b"k", b"v", (("none", None), ("empty", b"")), FIRST_MS)
    writer.produce(topic, 0, [record])
    assert [s.record for s in client(reader).read(topic, 0, 0, 1)] == [record]


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"] + ["uncompressed"])
def test_a_topic_that_sets_its_own_compression_is_read_by_all(
    client: GetClient, new_topic: TopicMaker, codec: str, reader: str
) -> None:
    writer = client("confluent-kafka")
    topic = new_topic(writer, configs={"compression.type": codec, "retention.ms": "-1"})
    records = some_records(300, seed=3)
    writer.produce(topic, 0, records[:150], codec="none")
    writer.produce(topic, 0, records[150:], codec="gzip")
    assert [s.record for s in client(reader).read(topic, 0, 0, 300)] == records
