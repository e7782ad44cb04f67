"""Asks the leaders of partitions for offsets: by time, or the ends of a log. Used by `fetcher` and `consumer`.

Called in the network's thread. Each partition gets an offset or a reason of its own; nothing is asked twice here.
"""

from collections.abc import Callable, Mapping

from barnabas.client.consumer.offsets import Found, OffsetWish, answers_to, request_for
from barnabas.client.network.failures import STALE, no_partition
from barnabas.client.network.metadata import Snapshot
from barnabas.client.network.network import Network
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.messages.list_offsets import ListOffsetsResponse


def missing(snapshot: Snapshot, partition: TopicPartition) -> Refused | None:
    """Why a partition has no leader to ask; None where it has one."""
    topic = snapshot.topics.get(partition.topic)
    if topic is None:
        code = snapshot.refused.get(partition.topic, Code.LEADER_NOT_AVAILABLE)
        return Refused(code, f"Topic {partition.topic!r}: {code.advice}")
    count = len(topic.partitions)
    if not 0 <= partition.partition < count:
        return no_partition(topic.name, partition.partition, count)
    if snapshot.leader(partition) is None:
        code = Code.LEADER_NOT_AVAILABLE
        return Refused(code, f"Partition {partition}: {code.advice}")
    return None


def ask_offsets(
    network: Network,
    wanted: Mapping[TopicPartition, int],
    done: Callable[[Found | Refused], None],
    *,
    read_committed: bool = False,
) -> None:
    """The first offset at or after each timestamp, or LATEST, EARLIEST, MAX_TIMESTAMP."""
    unknown = {each.topic for each in wanted} - network.metadata.snapshot.topics.keys()
    if not unknown:
        _Questions(network, wanted, done, read_committed)
        return

    def refreshed(snapshot: Snapshot | Refused) -> None:
        if isinstance(snapshot, Refused):
            done(snapshot)
        else:
            _Questions(network, wanted, done, read_committed)

    network.refresh(unknown, refreshed)


class _Questions:
    """Mutable: one request to each leader; tells when the last has answered."""

    def __init__(
        self,
        network: Network,
        wanted: Mapping[TopicPartition, int],
        done: Callable[[Found | Refused], None],
        read_committed: bool,
    ) -> None:
        self._done = done
        self._network = network
        self._found: Found = {}
        snapshot = network.metadata.snapshot
        by_leader: dict[BrokerId, list[OffsetWish]] = {}
        for partition, timestamp in wanted.items():
            if (why := missing(snapshot, partition)) is not None:
                self._found[partition] = why
                continue
            leader = snapshot.topics[partition.topic].partitions[partition.partition]
            wish = OffsetWish(partition, leader.leader_epoch, timestamp)
            by_leader.setdefault(leader.leader, []).append(wish)
        self._left = len(by_leader)
        if self._found:
            network.refresh_soon()
        if not by_leader:
            network.soon(lambda: done(self._found))
        for node, wishes in by_leader.items():
            request = request_for(wishes, read_committed=read_committed)
            network.ask(node, request, ListOffsetsResponse, self._hears(wishes))

    def _hears(self, wishes: list[OffsetWish]) -> Callable[[ListOffsetsResponse | Refused], None]:
        def told(answer: ListOffsetsResponse | Refused) -> None:
            if isinstance(answer, Refused):
                self._found |= dict.fromkeys((wish.partition for wish in wishes), answer)
            else:
                self._found |= answers_to(wishes, answer)
            if any(isinstance(each, Refused) and each.code in STALE for each in self._found.values()):
                self._network.refresh_soon()
            self._left -= 1
            if not self._left:
                self._done(self._found)

        return told
