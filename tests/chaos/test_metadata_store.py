"""Kills the broker amid storms of topics made, grown and deleted: what it acknowledged is so afterwards."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from barnabas.wire.apis import response_class
from barnabas.wire.frames import decode_response
from barnabas.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.other_clients.records import some_records
from tests.process import BrokerProcess
from tests.raw import Gone, RawConnection, frame_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS = 20
BURST = 25
SEED = 77
TIMEOUT_MS = 10_000
TOPIC_RESOURCE = 2


class Change(NamedTuple):
    """A wish, and the number of partitions that its topic has before and after (None: there is no topic)."""

    request: Any
    version: int
    name: str
    before: int | None
    after: int | None


class Storm:
    """Draws changes by seed and keeps what the broker has acknowledged: name -> number of partitions."""

    def __init__(self) -> None:
        self._chance = random.Random(SEED)
        self._made = 0
        self.topics: dict[str, int] = {}

    def below(self, limit: int) -> int:
        return self._chance.randrange(limit)

    def burst(self) -> list[Change]:
        """Changes for one round; none touches what another does, so each is judged for itself."""
        free = sorted(self.topics)
        self._chance.shuffle(free)
        return [self._draw(free) for _ in range(BURST)]

    def _draw(self, free: list[str]) -> Change:
        kind = self._chance.random()
        if not free or kind < 0.5:
            return self._create()
        name = free.pop()
        count = self.topics[name]
        if kind < 0.8:
            return Change(
                DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 5, name, count, None
            )
        wish = CreatePartitionsTopic(name, count + 1)
        return Change(CreatePartitionsRequest([wish], TIMEOUT_MS), 3, name, count, count + 1)

    def _create(self) -> Change:
        self._made += 1
        name, count = f"storm-{self._made}", self._chance.randrange(1, 4)
        setting = CreatableTopicConfig("retention.ms", _retention_of(name))
        wish = CreatableTopic(name, count, 1, configs=[setting])
        return Change(CreateTopicsRequest([wish], TIMEOUT_MS), 7, name, None, count)

    def acknowledge(self, change: Change) -> None:
        if change.after is None:
            del self.topics[change.name]
        else:
            self.topics[change.name] = change.after


def _retention_of(name: str) -> str:
    return str(int(name.removeprefix("storm-")) * 1000)


def test_topics_are_as_acknowledged_after_every_kill(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    storm = Storm()
    for _ in range(ROUNDS):
        unanswered = _be_killed_in_a_burst(broker, storm)
        broker.start()
        with RawConnection(broker.port) as connection:
            _check(connection, storm, unanswered)
    with ConfluentAdapter(broker.bootstrap) as client:
        for topic in sorted(storm.topics)[:5]:
            assert client.produce(topic, 0, some_records(1)) == [0]


def _be_killed_in_a_burst(broker: BrokerProcess, storm: Storm) -> list[Change]:
    """Sends many changes at once and kills the broker when some are answered; gives those that were not."""
    changes = storm.burst()
    answered = 0
    kill_after = storm.below(BURST)
    with RawConnection(broker.port) as connection:
        connection.send(b"".join(frame_of(change.request, change.version) for change in changes))
        try:
            for number, change in enumerate(changes):
                if number == kill_after:
                    broker.kill()  # answers that are on their way already still count
                assert _code(change, connection.receive()) == 0
                storm.acknowledge(change)
                answered += 1
        except Gone:
            pass
    if broker.running:
        broker.kill()
    return changes[answered:]


def _code(change: Change, frame: bytes) -> int:
    _, response = decode_response(response_class(change.request.api), change.version, frame)
    results = getattr(response, "topics", None) or getattr(response, "responses", None) or response.results
    return int(results[0].error_code)


def _check(connection: RawConnection, storm: Storm, unanswered: list[Change]) -> None:
    """Compares with what the broker says now; it has the last word on changes that were not answered."""
    answer = connection.ask(MetadataRequest(topics=None), 12)
    found = {topic.name: len(topic.partitions) for topic in answer.topics}
    for change in unanswered:
        assert found.get(change.name) in (change.before, change.after), "a change was made by half"
        if found.get(change.name) != change.before:
            storm.acknowledge(change)
    assert found == storm.topics
    assert all(p.leader_id >= 0 for topic in answer.topics for p in topic.partitions)
    wanted = [DescribeConfigsResource(TOPIC_RESOURCE, name, ["retention.ms"]) for name in found]
    configs = connection.ask(DescribeConfigsRequest(wanted), 4)
    assert {r.resource_name: r.configs[0].value for r in configs.results} == {
        name: _retention_of(name) for name in found
    }
