"""An error that was answered is counted under the API that was asked."""

import re
import urllib.request
import uuid
from collections.abc import Iterator

import pytest

from barnabas.cluster.configs import Operation
from barnabas.testing import Broker
from barnabas.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.speaking import connect, create
from tests.process import free_port
from tests.raw import RawConnection

TOPIC = 2
_ERRORS = re.compile(r'kafka_network_request_errors_total\{error="(\w+)",request="(\w+)"\} (\d+)\.0')


class Scraped:
    """A broker, and what it counted."""

    def __init__(self, connection: RawConnection, port: int) -> None:
        self.connection = connection
        self._port = port

    def errors(self) -> dict[tuple[str, str], int]:
        """How often which error was answered, by API and name."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=60) as answer:
            found = _ERRORS.findall(answer.read().decode())
        return {(api, error): int(count) for error, api, count in found}


@pytest.fixture
def scraped() -> Iterator[Scraped]:
    port = free_port()
    with Broker({"metrics.listen": f"127.0.0.1:{port}"}) as broker, connect(broker) as connection:
        yield Scraped(connection, port)


def test_both_ways_to_change_settings_are_told_apart(scraped: Scraped) -> None:
    create(scraped.connection, "t")
    wrong = [IncrementalAlterableConfig("retention.ms", Operation.SET, "soon")]
    some = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC, "t", wrong)])
    scraped.connection.ask(some, 1)
    assert scraped.errors() == {("IncrementalAlterConfigs", "INVALID_CONFIG"): 1}
    scraped.connection.ask(AlterConfigsRequest([AlterConfigsResource(TOPIC, "nowhere", [])]), 2)
    assert scraped.errors() == {
        ("IncrementalAlterConfigs", "INVALID_CONFIG"): 1,
        ("AlterConfigs", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
    }


def test_topics_that_metadata_does_not_find_are_counted(scraped: Scraped) -> None:
    create(scraped.connection, "t")
    topics = [
        MetadataRequestTopic(name="t"),
        MetadataRequestTopic(name="nowhere"),
        MetadataRequestTopic(name="no spaces"),
        MetadataRequestTopic(uuid.uuid4(), None),
    ]
    scraped.connection.ask(MetadataRequest(topics, allow_auto_topic_creation=False), 12)
    assert scraped.errors() == {
        ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        ("Metadata", "INVALID_TOPIC_EXCEPTION"): 1,
        ("Metadata", "UNKNOWN_TOPIC_ID"): 1,
    }
