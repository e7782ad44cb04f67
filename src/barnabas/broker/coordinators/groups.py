"""Owns the group coordinators of this broker: one for each partition of `__consumer_offsets` that it leads.

Handlers find a group's coordinator here (`host`); how coordinators come, load and go is in `coordinators`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.broker.coordinators.coordinators import Coordinators, InternalTopic, TopicShape
from barnabas.errors import Code, Refused
from barnabas.types import Offset, ProducerId

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker
    from barnabas.coordinator.coordinator import GroupCoordinator

    GroupCoordinators: TypeAlias = Coordinators[GroupCoordinator]
else:
    GroupCoordinators = Coordinators

OFFSETS_TOPIC = InternalTopic(
    "__consumer_offsets",
    lambda config: TopicShape(
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        config.offsets_topic_segment_bytes,
    ),
)


def _load() -> Any:
    return import_module("barnabas.coordinator.coordinator")


class Groups(GroupCoordinators):
    """Mutable: the coordinators of groups."""

    def __init__(self, broker: "Broker") -> None:
        super().__init__(broker, OFFSETS_TOPIC, _load)

    def end_transaction(
        self, index: int, producer_id: ProducerId, *, commit: bool, write: Callable[[], Offset]
    ) -> Offset:
        """Let `write` put a transaction's marker into a partition, and the coordinator there know of it.

        Raises Refused while it is not loaded: it would not hear of what its partition has.
        """
        host = self._hosts.get(index)
        if host is None:
            raise Refused(Code.NOT_COORDINATOR)
        if not host.is_loaded:
            raise Refused(Code.COORDINATOR_LOAD_IN_PROGRESS)
        return host.end_transaction(producer_id, commit=commit, write=write)

    # For metrics, from any thread: copies of one dict at a time, which cannot change while it is copied.

    def states(self) -> list[tuple[str, str]]:
        """Kind and state of each group here."""
        rows = [group.listed() for each in self.machines() for group in list(each.groups.values())]
        return [(row.group_type, row.group_state) for row in rows]

    def committed(self) -> list[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of all that is committed here."""
        return [row for each in self.machines() for row in each.offsets.rows()]
