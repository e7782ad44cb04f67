"""Owns names of topics that no other test uses, so that tests share one broker, ours or a given one."""

import uuid
from collections.abc import Mapping

from tests.deadline import eventually
from tests.other_clients.adapters.adapter import ClientAdapter

# The records that tests write are old, and a given broker may look for expired segments at any moment.
_KEEP = {"retention.ms": "-1"}


class TopicMaker:
    """Makes topics with fresh names, ready for use when the call returns."""

    def name(self) -> str:
        return f"t-{uuid.uuid4().hex[:12]}"

    def __call__(self, client: ClientAdapter, partitions: int = 1, configs: Mapping[str, str] = _KEEP) -> str:
        topic = self.name()
        client.create_topic(topic, partitions, configs)
        eventually(lambda: client.partition_count(topic) == partitions, f"a leader for each of {partitions}")
        return topic
