"""How a broker's settings become its store in ZooKeeper. Called by the broker; imports kazoo only then."""

import os
import socket
import uuid

from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.config import BrokerConfig
from barnabas.types import short_id


def open_store(config: BrokerConfig, cluster_id: str | None = None) -> ZooKeeperStore:
    """Connect; a sentence (BarnabasError) in bounded time for whatever is wrong, and then nothing has changed.

    `cluster_id` is the cluster that the broker's data belongs to, if there is any data. The place of the data tells
    the lives of one broker from two brokers of one id: a broker registers once it has locked its directories, so what
    another process registered from the same place on the same machine is over.
    """
    from barnabas.cluster.zookeeper.kazoo_client import KazooZooKeeper

    client = KazooZooKeeper(
        config.zookeeper_connect, config.zookeeper_session_timeout_ms, config.zookeeper_connection_timeout_ms
    )
    return ZooKeeperStore(
        client,
        cluster_id,
        short_id(uuid.uuid4()),
        directory=f"{socket.gethostname()}:{os.path.realpath(config.log_dirs[0])}",
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        creates_chroot=config.zookeeper_chroot_create,
    )
