"""What has to be in ZooKeeper before a broker can begin: the chroot, the cluster's id, Kafka's top-level nodes.

Called by `store`. A wrong set-up is one sentence and changes nothing. Kafka makes a missing chroot without a word, so
that a typing error begins a second cluster; here a missing one is refused unless zookeeper.chroot.create says
otherwise, and always for a broker whose data belongs to a cluster already.
"""

from collections.abc import Sequence

from barnabas.cluster.image import ControllerEpoch
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.client import Create, Reason, RefusedByZooKeeper, ZooKeeperClient
from barnabas.errors import BarnabasError


def prepare(
    client: ZooKeeperClient, cluster_id: str | None, new_cluster_id: str, *, creates_chroot: bool
) -> str:
    """Make what is missing; the cluster's id."""
    root, node = client.read(["/", znodes.CLUSTER_ID])
    found = None if node is None else znodes.parse_cluster_id(node.data)
    if root is None and (cluster_id is not None or not creates_chroot):
        raise BarnabasError(
            f"ZooKeeper at {client.name} has no such chroot: is zookeeper.connect right? For a new cluster say "
            "zookeeper.chroot.create=true."
        )
    if cluster_id is not None and found != cluster_id:
        there = f"cluster {found}" if found is not None else "no cluster yet"
        raise BarnabasError(
            f"The data of this broker belongs to cluster {cluster_id}, and ZooKeeper at {client.name} has {there}: "
            "correct zookeeper.connect, or give the broker data directories of its own (log.dirs)."
        )
    if root is None:
        client.make_root()
    make_missing(client, znodes.PERSISTENT)
    make_missing(client, [znodes.CONTROLLER_EPOCH], znodes.encode_controller_epoch(ControllerEpoch(0)))
    make_missing(client, [znodes.CLUSTER_ID], znodes.encode_cluster_id(new_cluster_id))
    (node,) = client.read([znodes.CLUSTER_ID])
    return znodes.parse_cluster_id(node.data if node is not None else b"")


def make_missing(client: ZooKeeperClient, paths: Sequence[str], data: bytes = b"") -> None:
    """Make the nodes that are not there, one by one: another broker may do the same at the same time."""
    for path, node in zip(paths, client.read(paths), strict=True):
        if node is None:
            try:
                client.multi([Create(path, data)])
            except RefusedByZooKeeper as refused:
                if refused.reason is not Reason.NODE_EXISTS:
                    raise
