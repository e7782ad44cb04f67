"""Owns the node that says that our broker is there. Called by `store`, one call at a time.

The node ends with our session. A broker that comes back before the session of its last life has ended finds a node in
its way: it is its own if it names the same data directory, which a living process would hold locked, and goes at once.
Any other is waited for, for a bounded time: then it is the sentence of a broker.id that is taken.
"""

import errno

from barnabas.clock import Clock
from barnabas.cluster.image import BrokerEpoch, BrokerImage
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.client import (
    ConnectionLost,
    Create,
    Delete,
    Node,
    NotConnected,
    Reason,
    RefusedByZooKeeper,
    ZkOperation,
    ZooKeeperClient,
)
from barnabas.cluster.zookeeper.reading import understood
from barnabas.errors import BarnabasError

ATTEMPTS = 20


class Registration:
    """Mutable: our broker as it is registered, and the session it is registered in."""

    def __init__(self, client: ZooKeeperClient, directory: str, clock: Clock) -> None:
        self._client = client
        self._directory = directory
        self._clock = clock
        self._session = 0
        self.broker: BrokerImage | None = None

    @property
    def path(self) -> str | None:
        return None if self.broker is None else znodes.broker_path(self.broker.id)

    def make(self, broker: BrokerImage, patience_s: float) -> BrokerImage:
        """Register a broker in a new epoch. With no patience at all it can be called from a callback."""
        self.broker = broker
        path, data = znodes.broker_path(broker.id), self._data(broker)
        is_sent = False
        for _ in range(ATTEMPTS):
            try:
                (node,) = self._client.read([path], watched=True)
                if is_sent and node is not None and (node.session, node.data) == (self._client.session, data):
                    break
                is_sent = True
                self._client.multi(self._steps(broker, node, data, patience_s))
            except RefusedByZooKeeper as refused:
                if refused.reason is Reason.OTHER:
                    raise
            except (ConnectionLost, NotConnected) as lost:
                # The node may be there: its session and data tell, once there is a connection.
                if not patience_s or not self._client.wait_connected(patience_s):
                    raise NotConnected(
                        errno.ENOTCONN, f"no connection to ZooKeeper at {self._client.name}"
                    ) from lost
        else:
            raise BarnabasError(f"The broker cannot be registered in ZooKeeper at {self._client.name}.")
        assert node is not None
        self._session = node.session
        self.broker = broker._replace(epoch=BrokerEpoch(node.created))
        return self.broker

    def renewed(self) -> BrokerImage | None:
        """Our broker, registered anew if it was not there any more; None where all is well."""
        if self.broker is None:
            return None
        (node,) = self._client.read([znodes.broker_path(self.broker.id)], watched=True)
        if node is not None and node.session == self._client.session == self._session:
            held = understood(znodes.parse_broker, self.broker.id, node.data, BrokerEpoch(node.created))
            if held is not None and held.survived:
                # The controller has settled what was lost: that is not to be said of another life again.
                self.broker = self.broker._replace(survived=True)
            return None
        return self.make(self.broker, patience_s=0)

    def _data(self, broker: BrokerImage) -> bytes:
        return znodes.encode_broker(broker, self._directory, self._clock.now())

    def _steps(
        self, broker: BrokerImage, node: Node | None, data: bytes, patience_s: float
    ) -> list[ZkOperation]:
        path = znodes.broker_path(broker.id)
        create = Create(path, data, is_ephemeral=True)
        if node is None:
            return [create]
        if node.session in (self._client.session, self._session) or (
            patience_s and self._is_last_life(broker, node)
        ):
            return [Delete(path, node.version), create]
        if not patience_s or not self._client.wait_gone(path, patience_s):
            raise _taken(broker, node)
        return [create]

    def _is_last_life(self, broker: BrokerImage, node: Node) -> bool:
        """Asked by a broker that begins, and so has the directory: one that goes on may have been replaced by it."""
        return (
            self._directory != "" and understood(znodes.directory_of, broker.id, node.data) == self._directory
        )


def _taken(broker: BrokerImage, node: Node) -> BarnabasError:
    holder = understood(znodes.parse_broker, broker.id, node.data, BrokerEpoch(node.created))
    where = f"the broker at {holder.host}:{holder.port}" if holder is not None else "another broker"
    return BarnabasError(
        f"broker.id {broker.id} is taken: {where} has it. Stop that one, or give this one another broker.id."
    )
