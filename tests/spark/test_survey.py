"""What the driver asks the cluster: a query that runs waits for a broker that comes back, a new one is told at once."""

from pathlib import Path
from threading import Timer

import pytest

from barnabas import Admin
from barnabas.errors import BarnabasError
from barnabas.spark.declared import Use
from barnabas.spark.options import read_options
from barnabas.spark.survey import Survey
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from tests.process import free_port


def test_a_running_query_waits_for_a_broker_that_comes_back(tmp_path: Path) -> None:
    port = free_port()
    first = Broker(data=tmp_path, port=port)
    first.start()
    address = first.bootstrap
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("orders", partitions=2)
    given = {"kafka.bootstrap.servers": address, "subscribe": "orders", "kafka.request.timeout.ms": "60000"}
    options = read_options(given, Use.STREAM)
    second = Broker(data=tmp_path, port=port)
    with Survey(options, patient=True) as patient, Survey(options) as hasty:
        known = {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0}
        assert patient.latest_of_all() == known
        assert hasty.latest_of_all() == known
        first.stop()
        with pytest.raises(BarnabasError):
            hasty.latest_of_all()
        back = Timer(0.5, second.start)
        back.start()
        try:
            assert patient.latest_of_all() == known
        finally:
            back.join()
            second.stop()


def test_a_query_that_starts_without_a_broker_is_told_at_once() -> None:
    options = read_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}, Use.STREAM)
    with Survey(options, patient=True) as survey, pytest.raises(BarnabasError, match="No broker answers"):
        survey.partitions()
