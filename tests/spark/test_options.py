"""What may be said with `.option(...)`, and what is said to somebody who says something else."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from barnabas.spark.declared import OPTIONS, Use
from barnabas.spark.options import (
    EARLIEST,
    LATEST,
    OptionError,
    Place,
    read_options,
    write_options,
)
from barnabas.types import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = {**SERVERS, "subscribe": "orders"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscribee": "orders"}, "There is no option 'subscribee'; did you mean subscribe?"),
        ({"path": "x"}, "There is no option 'path'"),
        ({"startingoffset": "earliest"}, "did you mean startingOffsets?"),
        ({"bootstrap.servers": "a:1"}, "did you mean kafka.bootstrap.servers?"),
        ({"zzz": "1"}, "There is no option 'zzz'."),
        ({"kafka.fetch.max.byte": "1"}, "did you mean kafka.fetch.max.bytes?"),
        ({"kafka.fetch.max.bytes": "x"}, "kafka.fetch.max.bytes is a whole number, not 'x'."),
        ({"kafka.check.crcs": "x"}, "kafka.check.crcs is true or false, not 'x'."),
        ({"kafka.auto.offset.reset": "earliest"}, "cannot be set: say startingOffsets instead."),
        ({"kafka.key.deserializer": "X"}, "kafka.key.deserializer cannot be set"),
        ({"topic": "orders"}, "The option topic is not for batch reads: leave it out."),
        ({"maxOffsetsPerTrigger": "1"}, "The option maxOffsetsPerTrigger is not for batch reads"),
        ({"assign": '{"a":[0]}'}, "assign and subscribe are given"),
        ({"subscribe": ""}, "Exactly one of subscribe, subscribePattern and assign says what is read; none"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribe": "", "subscribePattern": "("}, "subscribePattern '(' is no regular expression"),
        ({"subscribe": "", "assign": "orders"}, "assign is JSON such as {\"orders\":[0,1]}, not 'orders'."),
        ({"subscribe": "", "assign": '{"a":0}'}, 'assign is JSON such as {"orders":[0,1]}'),
        ({"subscribe": "", "assign": "{}"}, "assign names no partition"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "startingOffsets cannot be latest in a batch"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"startingOffsets": "first"}, "startingOffsets is JSON such as"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "startingOffsets has '0': -3 for topic 'orders'"),
        ({"startingOffsets": '{"orders":[0]}'}, "startingOffsets is JSON such as"),
        (
            {"startingTimestamp": "yesterday"},
            "startingTimestamp is milliseconds since 1970, not 'yesterday'.",
        ),
        ({"minPartitions": "0"}, "minPartitions is a whole number above 0, not '0'."),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is true or false, not 'maybe'."),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_a_wrong_option_is_one_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as told:
        read_options({**ORDERS, **given}, Use.BATCH)
    assert sentence in str(told.value)


def test_the_case_of_names_does_not_matter() -> None:
    # Spark hands them over in small letters.
    given = {name.lower(): value for name, value in {**ORDERS, "startingOffsets": "Earliest"}.items()}
    assert read_options(given, Use.BATCH).start == Place(EARLIEST)


def test_a_batch_begins_at_the_beginning_and_a_stream_at_the_end() -> None:
    assert read_options(ORDERS, Use.BATCH).start == Place(EARLIEST)
    assert read_options(ORDERS, Use.BATCH).end == Place(LATEST)
    assert read_options(ORDERS, Use.STREAM).start == Place(LATEST)


def test_a_time_goes_before_times_and_those_before_offsets() -> None:
    offsets, times = '{"orders":{"0":5,"1":-2}}', '{"orders":{"0":1700000000000}}'
    given = {**ORDERS, "startingOffsets": offsets}
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert read_options(given, Use.BATCH).start == Place(each=((first, 5), (second, EARLIEST)))
    given["startingOffsetsByTimestamp"] = times
    assert read_options(given, Use.BATCH).start == Place(each=((first, 1_700_000_000_000),), is_time=True)
    given["startingTimestamp"] = "99"
    assert read_options(given, Use.BATCH).start == Place(99, is_time=True)


@pytest.mark.parametrize(
    ("text", "ms"), [("250ms", 250), ("30s", 30_000), ("15 minutes", 900_000), ("2h", 7_200_000)]
)
def test_durations_are_written_as_people_do(text: str, ms: int) -> None:
    assert read_options({**ORDERS, "maxTriggerDelay": text}, Use.STREAM).max_delay_ms == ms


def test_settings_of_the_client_get_underscores_and_types() -> None:
    given = {**ORDERS, "kafka.fetch.max.bytes": "1000", "kafka.check.crcs": "FALSE", "kafka.linger.ms": "5"}
    assert read_options(given, Use.BATCH).client == {"fetch_max_bytes": 1000, "check_crcs": False}
    written = write_options({**SERVERS, "kafka.linger.ms": "5", "kafka.acks": "all", "topic": "t"})
    assert written.client == {"linger_ms": 5, "acks": "all"}
    assert written.topic == "t"


def test_what_kafka_queries_say_besides_is_taken() -> None:
    beside = {
        "kafka.group.id": "g",
        "kafka.session.timeout.ms": "1",
        "groupIdPrefix": "x",
        "includeHeaders": "true",
    }
    assert read_options({**ORDERS, **beside, "kafkaConsumer.pollTimeoutMs": "9"}, Use.STREAM).client == {}


def test_the_table_of_options_is_what_is_declared() -> None:
    root = Path(__file__).resolve().parent.parent.parent
    source = importlib.util.spec_from_file_location("table", root / "tools" / "spark_options_table.py")
    assert source is not None
    assert source.loader is not None
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    assert module.table() in (root / "docs" / "SPARK.md").read_text(), "see tools/spark_options_table.py"


def test_every_option_says_what_it_is() -> None:
    names: list[Any] = [option.name.lower() for option in OPTIONS]
    assert len(set(names)) == len(names)
    assert all(option.doc.endswith(".") for option in OPTIONS)
