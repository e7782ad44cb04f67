"""Clients of a simulated cluster: they speak frames, learn of leaders and coordinators, and try again."""

import asyncio

from barnabas.broker.peers.peer import Peer, PeerLost
from barnabas.errors import Code, Refused
from barnabas.testing.simulation.machine import PORT
from barnabas.testing.simulation.network import SimulatedNetwork
from barnabas.wire.codec import Message
from barnabas.wire.messages.coordinator import FindCoordinatorRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from barnabas.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from barnabas.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

ANSWER_MS = 2000
RETRY_S = 0.02


class ClientPeer(Peer):
    """A connection of a client."""

    between_brokers = False


class SimulatedClient:
    """Mutable: connections, and the leader of one partition as far as it is known."""

    def __init__(self, network: SimulatedNetwork, brokers: int, topic: str, name: str) -> None:
        self._peers = [ClientPeer(f"b{n}", PORT, name, network) for n in range(1, brokers + 1)]
        self._topic = topic
        self.leader = -1
        self.epoch = -1

    async def ask(self, broker: int, request: Message, timeout_ms: int = ANSWER_MS) -> object:
        """An answer; raises PeerLost."""
        return await self._peers[broker - 1].ask(request, timeout_ms)

    async def create(self, partitions: int, replicas: int, configs: dict[str, str]) -> None:
        """Make the topic, whatever it takes."""
        wanted = CreatableTopic(
            self._topic,
            partitions,
            replicas,
            configs=[CreatableTopicConfig(name, value) for name, value in configs.items()],
        )
        while True:
            for broker in range(1, len(self._peers) + 1):
                try:
                    answer = await self.ask(broker, CreateTopicsRequest([wanted], ANSWER_MS))
                except (PeerLost, Refused):
                    await asyncio.sleep(RETRY_S)
                    continue
                code = Code(answer.topics[0].error_code)  # type: ignore[attr-defined]
                if code in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
                    return
            await asyncio.sleep(RETRY_S)

    async def look_up(self, broker: int) -> None:
        """Ask a broker for the leader; what is older than what is known does not count."""
        request = MetadataRequest([MetadataRequestTopic(name=self._topic)])
        answer = await self.ask(broker, request)
        for topic in answer.topics:  # type: ignore[attr-defined]
            for row in topic.partitions:
                if row.leader_epoch >= self.epoch:
                    self.leader, self.epoch = row.leader_id, row.leader_epoch

    async def produce(self, batch: bytes, acks: int = -1, timeout_ms: int = 1000) -> tuple[Code, int]:
        """Send a batch to the leader; what it says, and the first offset. Raises PeerLost."""
        partition = ProducePartition(0, memoryview(bytearray(batch)))
        request = ProduceRequest(
            acks=acks, timeout_ms=timeout_ms, topic_data=[ProduceTopic(self._topic, [partition])]
        )
        answer = await self.ask(self.leader, request)
        [row] = answer.responses[0].partition_responses  # type: ignore[attr-defined]
        return Code(row.error_code), row.base_offset

    async def fetch(self, offset: int, max_wait_ms: int = 100) -> FetchPartitionResponse:
        """Read from the leader. Raises PeerLost."""
        partition = FetchPartition(0, self.epoch, offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(self._topic, partitions=[partition])]
        )
        answer = await self.ask(self.leader, request)
        found: FetchPartitionResponse = answer.responses[0].partitions[0]  # type: ignore[attr-defined]
        return found

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


class SimulatedGroup(SimulatedClient):
    """Mutable: commits offsets of one partition for a group without members, and the coordinator as far as known."""

    def __init__(self, network: SimulatedNetwork, brokers: int, topic: str, name: str) -> None:
        super().__init__(network, brokers, topic, name)
        self._group = name
        self.coordinator = -1

    async def find(self, broker: int) -> None:
        """Ask a broker for the coordinator. Raises PeerLost."""
        answer = await self.ask(broker, FindCoordinatorRequest(coordinator_keys=[self._group]))
        self.coordinator = answer.coordinators[0].node_id  # type: ignore[attr-defined]

    async def commit(self, offset: int) -> Code:
        """Commit an offset; what the coordinator says. Raises PeerLost."""
        rows = [OffsetCommitTopic(self._topic, [OffsetCommitPartition(0, offset)])]
        answer = await self.ask(self.coordinator, OffsetCommitRequest(self._group, topics=rows))
        return Code(answer.topics[0].partitions[0].error_code)  # type: ignore[attr-defined]

    async def committed(self) -> tuple[Code, int]:
        """What is committed: -1 for nothing. Raises PeerLost."""
        wanted = OffsetFetchGroup(self._group, topics=[OffsetFetchTopic(self._topic, [0])])
        answer = await self.ask(self.coordinator, OffsetFetchRequest(groups=[wanted]))
        [found] = answer.groups  # type: ignore[attr-defined]
        if found.error_code:
            return Code(found.error_code), -1
        [row] = found.topics[0].partitions
        return Code(row.error_code), row.committed_offset
