"""Owns the claim to be the controller, and what a controller reads and writes in ZooKeeper. Called by `store`.

The claim is the node /controller, which ends with our session, made in one multi with the next epoch. Every write is a
multi that checks the version of /controller_epoch first: after another claim it is refused (Deposed). What it gives are
images and events; showing them is the store's business.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from barnabas.clock import Clock
from barnabas.cluster.image import BrokerImage, ClusterImage, ControllerEpoch, TopicImage, Topics
from barnabas.cluster.store import (
    Deposed,
    DirectoryFailed,
    ElectionWanted,
    Event,
    IsrChanged,
    ReassignmentWanted,
)
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.changes import cut, multis_between
from barnabas.cluster.zookeeper.client import (
    Check,
    Create,
    Delete,
    Reason,
    RefusedByZooKeeper,
    SetData,
    ZkOperation,
    ZooKeeperClient,
)
from barnabas.cluster.zookeeper.preparing import make_missing
from barnabas.cluster.zookeeper.reading import (
    missing_parents,
    read_brokers,
    read_topics,
    tree,
    understood,
)
from barnabas.types import BrokerId

MOST_NODE_BYTES = 1_000_000
"""ZooKeeper hangs up on what is larger than jute.maxbuffer, a MiB unless it is told otherwise."""
_TOO_LARGE = "it would be larger than ZooKeeper takes; give the topic fewer partitions"

WATCHED = (
    znodes.ISR_NOTICES,
    znodes.DIRECTORY_NOTICES,
    znodes.REASSIGN_PARTITIONS,
    znodes.PREFERRED_ELECTION,
)
"""What a new controller looks at besides brokers and topics: it may have waited."""


class Claim(NamedTuple):
    epoch: ControllerEpoch
    version: int
    """Of the node /controller_epoch, which every write checks."""
    session: int


class Controllership:
    """Mutable: our claim, if we have one, and which settings have a node."""

    def __init__(self, client: ZooKeeperClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._settings: set[str] = set()
        self.claim: Claim | None = None

    def take(self, broker: BrokerId, over: BrokerId | None = None) -> Claim | None:
        """Claim it; None where another broker has it. What an earlier claim of this session left is taken up."""
        while True:
            holder, counted = self._client.read([znodes.CONTROLLER, znodes.CONTROLLER_EPOCH])
            if counted is None:
                raise znodes.DamagedNode(f"The node {znodes.CONTROLLER_EPOCH} in ZooKeeper is gone.")
            epoch = znodes.parse_controller_epoch(counted.data)
            steps: list[ZkOperation] = []
            if holder is not None and holder.session == self._client.session:
                # Made together with the epoch, so the epoch is ours where the node is.
                self.claim = Claim(epoch, counted.version, holder.session)
                return self.claim
            if holder is not None:
                if over is None or understood(znodes.parse_controller, holder.data) != over:
                    self.claim = None
                    return None
                steps = [Delete(znodes.CONTROLLER, holder.version)]
            data = znodes.encode_controller(broker, self._clock.now())
            following = znodes.encode_controller_epoch(ControllerEpoch(epoch + 1))
            steps += [
                Create(znodes.CONTROLLER, data, is_ephemeral=True),
                SetData(znodes.CONTROLLER_EPOCH, following, counted.version),
            ]
            try:
                self._client.multi(steps)
            except RefusedByZooKeeper as refused:
                if refused.reason is Reason.OTHER:
                    raise

    def is_held(self) -> bool:
        """Whether the claim still counts: it was made in this session, and its node is there."""
        (holder,) = self._client.read([znodes.CONTROLLER])
        if self.claim is None or holder is None:
            return False
        return holder.session == self.claim.session == self._client.session

    def release(self) -> None:
        """Drop a node of ours that no claim stands behind, because its answer was lost."""
        (holder,) = self._client.read([znodes.CONTROLLER])
        if self.claim is None and holder is not None and holder.session == self._client.session:
            self._client.multi([Delete(znodes.CONTROLLER, holder.version)])

    # Writing

    def write(self, before: ClusterImage, after: ClusterImage) -> None:
        """Make ZooKeeper hold the second image where it held the first."""
        for operations in multis_between(before, after, self._settings):
            self._multi(operations)
            self._note_settings(operations)
        for broker in sorted(after.since(before).brokers):
            if broker in before.brokers and broker in after.brokers and after.brokers[broker].survived:
                self._believe(before.brokers[broker])
        made = [name for name in after.since(before).topics if _is_new(name, before.topics, after.topics)]
        self._client.read([znodes.topic_path(name) for name in sorted(made)], watched=True)

    def _believe(self, broker: BrokerImage) -> None:
        """Note that what a broker lost with its power is settled: the next controller need not settle it again."""
        if broker.survived:
            return
        path = znodes.broker_path(broker.id)
        (node,) = self._client.read([path])
        if node is not None and node.created == broker.epoch:
            self._multi([SetData(path, znodes.believed(node.data), node.version)])

    def _multi(self, operations: Sequence[ZkOperation]) -> None:
        if self.claim is None:
            raise Deposed("This broker is not the controller.")
        for operation in operations:
            if len(getattr(operation, "data", b"")) > MOST_NODE_BYTES:
                raise RefusedByZooKeeper(Reason.OTHER, operation.path, more=_TOO_LARGE)
        try:
            self._client.multi([Check(znodes.CONTROLLER_EPOCH, self.claim.version), *operations])
        except RefusedByZooKeeper as refused:
            if refused.index == 0:
                raise Deposed("Another broker is the controller now.") from refused
            raise

    def _note_settings(self, operations: Iterable[ZkOperation]) -> None:
        for operation in operations:
            entity = operation.path.removeprefix(znodes.CONFIG + "/")
            if entity == operation.path or operation.path == znodes.CONFIG_CHANGE:
                continue
            if isinstance(operation, Delete):
                self._settings.discard(entity)
            else:
                self._settings.add(entity)

    # Reading

    def everything(self, shared: ClusterImage) -> ClusterImage:
        """All there is, put into an image that has what every broker sees; from here on changes are told of."""
        client = self._client
        make_missing(client, znodes.PERSISTENT)
        brokers = read_brokers(client)
        self._settings = {f"topics/{name}" for name in client.children(znodes.TOPIC_CONFIGS) or []}
        self._settings |= {f"brokers/{name}" for name in client.children(znodes.BROKER_CONFIGS) or []}
        (ids,) = client.read([znodes.PRODUCER_ID_BLOCK])
        following = znodes.parse_producer_ids(ids.data if ids is not None else b"")
        image = replace(shared, brokers=brokers, topics=Topics(), next_producer_id=following)
        return self.topics(image)

    def brokers(self, image: ClusterImage) -> ClusterImage:
        return replace(image, brokers=read_brokers(self._client))

    def topics(self, image: ClusterImage) -> ClusterImage:
        """The image with the topics that have come and gone; those that are to be deleted are."""
        doomed = self._client.children(znodes.DELETE_TOPICS, watched=True) or []
        for name in doomed:
            self._delete(name)
        names = self._client.children(znodes.TOPICS, watched=True) or []
        there = set(names)
        gone: dict[str, TopicImage | None] = dict.fromkeys(name for name in image.topics if name not in there)
        # A topic of the same name as one that was just deleted is another one.
        new = [name for name in names if name not in image.topics or name in doomed]
        return self._with_topics(image, gone | self._read_topics(new, image))

    def topics_again(self, image: ClusterImage, names: Sequence[str]) -> ClusterImage:
        """The image with these topics as they are now."""
        return self._with_topics(image, self._read_topics(names, image))

    def _read_topics(self, names: Sequence[str], image: ClusterImage) -> dict[str, TopicImage | None]:
        found = read_topics(self._client, names, image.topics) if names else {}
        for piece in cut([Create(path) for path in missing_parents(self._client, found.values())]):
            self._multi(piece)
        return found

    def _with_topics(self, image: ClusterImage, found: dict[str, TopicImage | None]) -> ClusterImage:
        different = {name: topic for name, topic in found.items() if topic != image.topics.get(name)}
        return replace(image, topics=image.topics.updated(different)) if different else image

    def _delete(self, name: str) -> None:
        """End a deletion that was asked for or begun; its mark goes last."""
        client, settings = self._client, znodes.config_path(znodes.topic_entity(name))
        paths = [*tree(client, znodes.topic_path(name)), *tree(client, settings), znodes.delete_path(name)]
        for piece in cut([Delete(path) for path in paths]):
            self._multi(piece)
            self._note_settings(piece)

    # What brokers and tools tell

    def notices(self, path: str) -> list[Event]:
        """What brokers have told since the last look; each is told once."""
        names = self._client.children(path, watched=True) or []
        paths = [f"{path}/{name}" for name in names]
        nodes = self._client.read(paths)
        events: list[Event] = []
        for found, node in zip(paths, nodes, strict=True):
            if node is None:
                continue
            if path == znodes.ISR_NOTICES:
                partitions = understood(znodes.parse_partitions, found, node.data)
                events += [IsrChanged(partitions)] if partitions else []
            else:
                broker = understood(znodes.parse_directory_notice, found, node.data)
                events += [DirectoryFailed(broker)] if broker is not None else []
        for piece in cut([Delete(found) for found in paths]):
            self._multi(piece)
        return events

    def wish(self, path: str) -> Event | None:
        """What a tool has asked for by a node of its own, which is then taken away."""
        (node,) = self._client.read([path], watched=True)
        if node is None:
            return None
        event: Event | None = None
        if path == znodes.REASSIGN_PARTITIONS:
            wanted = understood(znodes.parse_reassignments, node.data)
            event = ReassignmentWanted(wanted) if wanted else None
        else:
            partitions = understood(znodes.parse_partitions, path, node.data)
            event = ElectionWanted(partitions) if partitions else None
        self._multi([Delete(path, node.version)])
        self._client.read([path], watched=True)
        return event


def _is_new(name: str, before: Topics, after: Topics) -> bool:
    return name in after and (name not in before or before[name].id != after[name].id)
