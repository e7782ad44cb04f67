"""Owns how far our broker has followed the notices of changed settings (/config/changes). Called by `store`.

Each change of settings leaves a numbered notice that names what it is of. Notices are kept for as long as Kafka keeps
them, so that a broker that was away finds what it missed; where older ones are gone, everything may have changed.
"""

from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.client import Delete, Reason, RefusedByZooKeeper, ZooKeeperClient
from barnabas.cluster.zookeeper.reading import understood

KEPT_MS = 15 * 60 * 1000
PURGED_AT_ONCE = 100


class SettingsFeed:
    """Mutable: the number of the newest notice that was followed."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._last: int | None = None

    def skip(self) -> None:
        """Everything is read from here on: what happened before needs no notice."""
        numbers = [znodes.sequence_of(name) for name in self._names()]
        self._last = max([*numbers, -1 if self._last is None else self._last])

    def changed(self) -> list[str] | None:
        """The entities whose settings have changed since the last call; None where it could be any."""
        names = self._names()
        last = -1 if self._last is None else self._last
        new = [name for name in names if znodes.sequence_of(name) > last]
        is_whole = not names or znodes.sequence_of(names[0]) <= last + 1
        nodes = self._client.read([f"{znodes.CONFIG_CHANGES}/{name}" for name in new])
        self._last = max([last, *map(znodes.sequence_of, new)])
        if not is_whole and new:
            return None
        read = zip(new, nodes, strict=True)
        found = [understood(znodes.parse_config_change, name, node.data) for name, node in read if node]
        return list(dict.fromkeys(entity for entity in found if entity is not None))

    def purge(self) -> None:
        """Drop notices that every broker had time to follow, by ZooKeeper's own clock."""
        names = self._names()
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in [*names[:PURGED_AT_ONCE], *names[-1:]]]
        nodes = self._client.read(paths)
        newest = max((node.created_ms for node in nodes if node is not None), default=0)
        for path, node in zip(paths, nodes, strict=True):
            if node is not None and node.created_ms < newest - KEPT_MS:
                try:
                    self._client.multi([Delete(path)])
                except RefusedByZooKeeper as refused:
                    if refused.reason is not Reason.NO_NODE:
                        raise

    def _names(self) -> list[str]:
        names = self._client.children(znodes.CONFIG_CHANGES, watched=True) or []
        return sorted((name for name in names if znodes.sequence_of(name) >= 0), key=znodes.sequence_of)
