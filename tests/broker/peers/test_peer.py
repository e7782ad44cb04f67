"""A peer: questions to another broker, over a real socket."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from barnabas.broker.peers.lines import SocketDialer
from barnabas.broker.peers.peer import Peer, PeerLost
from barnabas.broker.peers.peers import Peers
from barnabas.cluster.image import BrokerImage
from barnabas.testing import Broker
from barnabas.types import BrokerId
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.speaking import batch, connect, create, produce_request


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def within_reason() -> Any:
        async with asyncio.timeout(120):
            return await work

    return asyncio.run(within_reason())


def peer_at(bootstrap: str) -> Peer:
    host, _, port = bootstrap.rpartition(":")
    return Peer(host, int(port), "broker-9-test", SocketDialer())


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_several_questions_at_once_get_an_answer_each(broker: Broker) -> None:
    async def ask() -> list[str]:
        peer = peer_at(broker.bootstrap)
        answers = await asyncio.gather(*(peer.ask(MetadataRequest([]), 5000) for _ in range(5)))
        peer.close()
        return [answer.cluster_id for answer in answers]

    found = run(ask())
    assert len(found) == 5
    assert len(set(found)) == 1
    assert found[0]


def test_records_larger_than_any_buffer_arrive_whole(broker: Broker, topic: str) -> None:
    value = bytes(range(256)) * 3000
    with connect(broker) as connection:
        create(connection, topic)
        connection.ask(produce_request(topic, batch(value)), 9)

    async def ask() -> bytes:
        peer = peer_at(broker.bootstrap)
        wanted = FetchPartition(0, partition_max_bytes=1 << 20)
        known = await peer.ask(MetadataRequest([MetadataRequestTopic(name=topic)]), 5000)
        asked = FetchTopic(topic, [wanted], topic_id=known.topics[0].topic_id)
        answer = await peer.ask(FetchRequest(topics=[asked]), 5000)
        peer.close()
        return bytes(answer.responses[0].partitions[0].records)

    assert value in run(ask())


def test_a_port_where_nothing_listens_is_told_as_refused() -> None:
    async def ask() -> PeerLost:
        peer = peer_at(f"127.0.0.1:{closed_port()}")
        with pytest.raises(PeerLost) as told:
            await peer.ask(MetadataRequest([]), 5000)
        peer.close()
        return told.value

    assert run(ask()).is_refused


def test_a_peer_that_does_not_answer_is_given_up_when_the_time_is_up() -> None:
    async def ask() -> PeerLost:
        silent = socket.create_server(("127.0.0.1", 0))
        peer = peer_at(f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(PeerLost) as told:
            await peer.ask(MetadataRequest([]), 50)
        peer.close()
        silent.close()
        return told.value

    assert not run(ask()).is_refused


def test_a_broker_that_came_back_is_asked_over_a_new_connection() -> None:
    async def ask() -> None:
        first = await asyncio.to_thread(Broker().start)
        peer = peer_at(first.bootstrap)
        await peer.ask(MetadataRequest([]), 5000)
        port = int(first.bootstrap.rpartition(":")[2])
        await asyncio.to_thread(first.stop)
        with pytest.raises(PeerLost):
            await peer.ask(MetadataRequest([]), 5000)
        second = await asyncio.to_thread(Broker(port=port).start)
        answer = None
        while answer is None:
            try:
                answer = await peer.ask(MetadataRequest([]), 5000)
            except PeerLost:
                continue
        peer.close()
        await asyncio.to_thread(second.stop)

    run(ask())


def test_a_watched_broker_that_dies_is_told_of_without_being_asked() -> None:
    async def watch() -> None:
        running = await asyncio.to_thread(Broker().start)
        peer = peer_at(running.bootstrap)
        refused = asyncio.Event()
        peer.watch(refused.set)
        await peer.ask(MetadataRequest([]), 5000)
        assert not refused.is_set()
        await asyncio.to_thread(running.stop)
        await refused.wait()
        peer.close()

    run(watch())


def test_closing_answers_all_that_wait() -> None:
    async def ask() -> None:
        silent = socket.create_server(("127.0.0.1", 0))
        peer = peer_at(f"127.0.0.1:{silent.getsockname()[1]}")
        asked = asyncio.create_task(peer.ask(MetadataRequest([]), 60_000))
        await asyncio.sleep(0)
        peer.close()
        with pytest.raises(PeerLost):
            await asked
        silent.close()

    run(ask())


def test_a_broker_at_another_address_is_another_peer() -> None:
    async def look() -> None:
        peers = Peers(BrokerId(1))
        at_first = BrokerImage(BrokerId(2), "127.0.0.1", 9001)
        peer = peers.get(at_first, "fetcher")
        assert peers.get(at_first, "fetcher") is peer
        assert peers.get(at_first, "controller") is not peer
        assert peers.get(at_first._replace(port=9002), "fetcher") is not peer
        peers.close()

    run(look())
