"""Owns the connections to other brokers, one for each broker and purpose.

The broker has one of these. A purpose has a connection of its own, so that a fetch that waits for records never holds
up a question to the controller. A broker that registers at another address gets another connection.
"""

from barnabas.broker.peers.lines import Dialer, SocketDialer
from barnabas.broker.peers.peer import Peer
from barnabas.cluster.image import BrokerImage
from barnabas.types import BrokerId


class Peers:
    """Mutable: the peers, by broker and purpose."""

    def __init__(self, broker_id: BrokerId, dialer: Dialer | None = None) -> None:
        self._broker_id = broker_id
        self._dialer = dialer or SocketDialer()
        self._peers: dict[tuple[BrokerId, str], Peer] = {}

    def get(self, broker: BrokerImage, purpose: str) -> Peer:
        """The connection to a broker for a purpose; it dials when it is asked."""
        key = broker.id, purpose
        peer = self._peers.get(key)
        is_there = peer is not None and (peer.host, peer.port) == (broker.host, broker.port)
        if peer is not None and is_there and not peer.is_closed:
            return peer
        if peer is not None:
            peer.close()
        client_id = f"broker-{self._broker_id}-{purpose}"
        peer = self._peers[key] = Peer(broker.host, broker.port, client_id, self._dialer)
        return peer

    def drop(self, broker_id: BrokerId, purpose: str) -> None:
        """Close a connection that is needed no more."""
        peer = self._peers.pop((broker_id, purpose), None)
        if peer is not None:
            peer.close()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
