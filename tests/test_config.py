"""Which values settings take, which they refuse, and which of two counts."""

import pytest

from barnabas.config import broker_config, topic_settings
from barnabas.setting import ConfigError


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "1_000"),
        ("retention.ms", "٣٠٠٠"),
        ("retention.ms", "3.0"),
        ("retention.ms", ""),
        ("retention.ms", "9" * 5000),
        ("min.insync.replicas", "1_0"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "0.0_5"),
        ("min.cleanable.dirty.ratio", "٠.٥"),
        ("min.cleanable.dirty.ratio", "-inf"),
        ("min.cleanable.dirty.ratio", "1e999"),
    ],
)
def test_a_number_is_written_in_plain_digits_and_is_finite(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        topic_settings()[name].parse(text)


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("retention.ms", " 3000 ", 3000),
        ("retention.ms", "+7", 7),
        ("retention.ms", "-1", -1),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("min.cleanable.dirty.ratio", ".5", 0.5),
        ("min.cleanable.dirty.ratio", "5e-1", 0.5),
    ],
)
def test_numbers_may_have_signs_blanks_and_exponents(name: str, text: str, meant: float) -> None:
    assert topic_settings()[name].parse(text) == meant


def test_only_assignors_that_exist_can_be_chosen() -> None:
    assert broker_config({"group.consumer.assignors": "range"})[0].group_consumer_assignors == ("range",)
    for wrong in ("foo", "uniform,foo", ""):
        with pytest.raises(ConfigError, match="uniform, range"):
            broker_config({"group.consumer.assignors": wrong})


@pytest.mark.parametrize("file", [{"broker.id": "3"}, {"node.id": "3"}, {"node.id": "3", "broker.id": "3"}])
@pytest.mark.parametrize("name", ["broker.id", "node.id"])
def test_the_command_line_counts_before_the_file_by_either_name(file: dict[str, str], name: str) -> None:
    assert broker_config(file)[0].broker_id == 3
    config, unknown = broker_config(file, {name: "4"})
    assert (config.broker_id, config.given, unknown) == (4, {"broker.id": "4"}, [])


def test_two_numbers_for_one_broker_in_one_place_are_refused() -> None:
    with pytest.raises(ConfigError, match="not 3 and 4"):
        broker_config({"broker.id": "3", "node.id": "4"})


def test_where_the_data_is_can_be_said_again_by_either_name() -> None:
    assert broker_config({"log.dirs": "a"}, {"log.dir": "b"})[0].log_dirs == ("b",)
    assert broker_config({"log.dir": "a", "log.dirs": "b"})[0].log_dirs == ("b",)
