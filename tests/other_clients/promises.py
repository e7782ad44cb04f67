"""Owns what the broker promises to every client. The test file of each client runs it with its adapter."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.errors import Code
from tests.deadline import eventually
from tests.other_clients.adapters.adapter import CODECS, ClientAdapter, Record, Refusal
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.other_clients.records import FIRST_MS, STEP_MS, some_records
from tests.other_clients.topics import TopicMaker

TEN_THOUSAND = 10_000


class ClientPromises:
    """Subclasses provide the fixture `client`."""

    def test_a_topic_is_created_seen_and_deleted(self, client: ClientAdapter, new_topic: TopicMaker) -> None:
        topic = new_topic.name()
        client.create_topic(topic, partitions=3)
        eventually(lambda: client.partition_count(topic) == 3, "three partitions with a leader")
        assert topic in client.topics()
        client.delete_topic(topic)
        eventually(lambda: topic not in client.topics(), "the topic to be gone")

    @pytest.mark.parametrize("codec", CODECS)
    def test_ten_thousand_records_come_back_equal(
        self, client: ClientAdapter, new_topic: TopicMaker, codec: str
    ) -> None:
        topic = new_topic(client)
        records = some_records(TEN_THOUSAND)
        offsets = client.produce(topic, 0, records, codec=codec)
        assert offsets == list(range(TEN_THOUSAND))
        stored = client.read(topic, 0, 0, TEN_THOUSAND)
        assert [at for at, _ in stored] == offsets
        assert [record for _, record in stored] == records

    def test_reading_starts_at_any_offset_even_inside_a_batch(
        self, client: ClientAdapter, new_topic: TopicMaker
    ) -> None:
        topic = new_topic(client)
        records = some_records(500)
        client.produce(topic, 0, records, codec="lz4")
        for start in (0, 1, 123, 498, 499):
            stored = client.read(topic, 0, start, min(3, 500 - start))
            assert [s.offset for s in stored] == list(range(start, min(start + 3, 500)))
            assert stored[0].record == records[start]

    def test_an_idempotent_producer_stores_each_record_once_and_in_order(
        self, client: ClientAdapter, new_topic: TopicMaker
    ) -> None:
        topic = new_topic(client, partitions=2)
        records = some_records(3000)
        for partition in (0, 1):
            offsets = client.produce(topic, partition, records, idempotent=True)
            assert offsets == list(range(3000))
            assert [s.record for s in client.read(topic, partition, 0, 3000)] == records

    def test_a_time_finds_the_first_record_as_new_as_it(
        self, client: ClientAdapter, new_topic: TopicMaker
    ) -> None:
        topic = new_topic(client)
        client.produce(topic, 0, some_records(2000))
        assert client.offset_for_time(topic, 0, FIRST_MS - 1) == 0
        assert client.offset_for_time(topic, 0, FIRST_MS) == 0
        assert client.offset_for_time(topic, 0, FIRST_MS + 700 * STEP_MS) == 700
        assert client.offset_for_time(topic, 0, FIRST_MS + 700 * STEP_MS + 1) == 701
        assert client.offset_for_time(topic, 0, FIRST_MS + 1999 * STEP_MS) == 1999
        assert client.offset_for_time(topic, 0, FIRST_MS + 1999 * STEP_MS + 1) is None

    def test_the_first_and_the_next_offset_are_known(
        self, client: ClientAdapter, new_topic: TopicMaker
    ) -> None:
        topic = new_topic(client)
        assert client.offsets(topic, 0) == (0, 0)
        client.produce(topic, 0, some_records(7))
        assert client.offsets(topic, 0) == (0, 7)

    def test_the_broker_stamps_the_time_when_the_topic_says_so(
        self, client: ClientAdapter, new_topic: TopicMaker
    ) -> None:
        topic = new_topic(client, configs={"message.timestamp.type": "LogAppendTime"})
        written = some_records(5)
        client.produce(topic, 0, written, codec="gzip")
        read = [s.record for s in client.read(topic, 0, 0, 5)]
        assert [r[:3] for r in read] == [w[:3] for w in written]
        assert all(r.timestamp_ms > w.timestamp_ms for r, w in zip(read, written, strict=True))

    def test_settings_have_kafkas_defaults(self, client: ClientAdapter, new_topic: TopicMaker) -> None:
        topic = new_topic(client, configs={})
        found = client.configs(topic)
        wanted = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "max.message.bytes": "1048588",
            "message.timestamp.type": "CreateTime",
            "min.cleanable.dirty.ratio": "0.5",
            "retention.bytes": "-1",
            "retention.ms": "604800000",
            "segment.bytes": "1073741824",
        }
        assert {name: found.get(name) for name in wanted} == wanted

    def test_settings_are_changed_one_at_a_time(self, client: ClientAdapter, new_topic: TopicMaker) -> None:
        topic = new_topic(client, configs={"retention.ms": "86400000"})
        client.set_config(topic, "segment.bytes", "1048576")
        client.set_config(topic, "cleanup.policy", "compact")

        def settings() -> tuple[str | None, ...]:
            found = client.configs(topic)
            return tuple(found[name] for name in ("retention.ms", "segment.bytes", "cleanup.policy"))

        eventually(lambda: settings() == ("86400000", "1048576", "compact"), "both settings beside the first")

    @pytest.mark.parametrize(
        ("name", "value"), [("retention.ms", "soon"), ("cleanup.policy", "forget"), ("no.such.setting", "1")]
    )
    def test_a_bad_setting_is_refused(
        self, client: ClientAdapter, new_topic: TopicMaker, name: str, value: str
    ) -> None:
        topic = new_topic(client)
        with pytest.raises(Refusal) as refused:
            client.set_config(topic, name, value)
        assert refused.value.code == Code.INVALID_CONFIG
        with pytest.raises(Refusal) as refused:
            client.create_topic(new_topic.name(), configs={name: value})
        assert refused.value.code == Code.INVALID_CONFIG

    def test_partitions_are_added_and_serve(self, client: ClientAdapter, new_topic: TopicMaker) -> None:
        topic = new_topic(client, partitions=2)
        client.add_partitions(topic, 5)
        eventually(lambda: client.partition_count(topic) == 5, "five partitions with a leader")
        records = some_records(10)
        assert client.produce(topic, 4, records) == list(range(10))
        assert [s.record for s in client.read(topic, 4, 0, 10)] == records
        with pytest.raises(Refusal) as refused:
            client.add_partitions(topic, 3)
        assert refused.value.code == Code.INVALID_PARTITIONS

    def test_deleted_records_are_gone_and_offsets_stay(
        self, client: ClientAdapter, new_topic: TopicMaker
    ) -> None:
        topic = new_topic(client)
        records = some_records(100)
        client.produce(topic, 0, records)
        assert client.delete_records(topic, 0, 60) == 60
        assert client.offsets(topic, 0) == (60, 100)
        stored = client.read(topic, 0, 60, 40)
        assert [s.offset for s in stored] == list(range(60, 100))
        assert [s.record for s in stored] == records[60:]
        with pytest.raises(Refusal) as refused:
            client.delete_records(topic, 0, 101)
        assert refused.value.code == Code.OFFSET_OUT_OF_RANGE
        assert client.delete_records(topic, 0, -1) == 100
        assert client.offsets(topic, 0) == (100, 100)
        assert client.produce(topic, 0, records[:1]) == [100]

    def test_names_that_cannot_be_are_refused(self, client: ClientAdapter, new_topic: TopicMaker) -> None:
        taken = new_topic(client)
        refusals = {
            taken: Code.TOPIC_ALREADY_EXISTS,
            "with space": Code.INVALID_TOPIC_EXCEPTION,
            "x" * 250: Code.INVALID_TOPIC_EXCEPTION,
        }
        for name, code in refusals.items():
            with pytest.raises(Refusal) as refused:
                client.create_topic(name)
            assert refused.value.code == code
        with pytest.raises(Refusal) as refused:
            client.delete_topic(new_topic.name())
        assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_record_larger_than_the_topic_allows_is_refused(
        self, client: ClientAdapter, new_topic: TopicMaker
    ) -> None:
        topic = new_topic(client, configs={"max.message.bytes": "1000"})
        with pytest.raises(Refusal) as refused:
            client.produce(topic, 0, [Record(b"k", b"x" * 2000, (), FIRST_MS)])
        assert refused.value.code == Code.MESSAGE_TOO_LARGE
        assert client.offsets(topic, 0) == (0, 0)

    def test_a_waiting_reader_gets_what_is_written_later(
        self, client: ClientAdapter, new_topic: TopicMaker
    ) -> None:
        topic = new_topic(client)
        records = some_records(20)
        with ConfluentAdapter(client.bootstrap) as other, ThreadPoolExecutor(1) as beside:
            reading = beside.submit(client.read, topic, 0, 0, 20)
            for record in records:
                other.produce(topic, 0, [record])
            assert [s.record for s in reading.result()] == records
