"""Which settings a broker starts with: the command line's before the file's, by whichever name."""

from pathlib import Path

import pytest

from barnabas.cli.up import broker, up
from barnabas.config import BrokerConfig
from barnabas.setting import ConfigError


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BrokerConfig]:
    configs: list[BrokerConfig] = []
    monkeypatch.setattr("barnabas.broker.run.run", lambda config, ready: configs.append(config))
    monkeypatch.setattr("barnabas.cli.logs.log_to_stderr", lambda log_format: None)
    return configs


@pytest.mark.parametrize("in_file", ["broker.id=3", "node.id=3", "node.id=3\nbroker.id=3"])
@pytest.mark.parametrize("name", ["broker.id", "node.id"])
def test_a_number_on_the_command_line_counts(
    tmp_path: Path, started: list[BrokerConfig], in_file: str, name: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(in_file)
    broker(str(file), [f"{name}=4"])
    assert [config.broker_id for config in started] == [4]


def test_a_file_with_two_numbers_is_refused(tmp_path: Path, started: list[BrokerConfig]) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=3\nnode.id=4")
    with pytest.raises(ConfigError, match="not 3 and 4"):
        broker(str(file))
    assert not started


def test_where_the_data_is_can_be_set_by_either_name(started: list[BrokerConfig]) -> None:
    up(settings=["log.dir=elsewhere"])
    assert started[0].log_dirs == ("elsewhere",)
