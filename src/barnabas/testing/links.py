"""Owns the links of a cluster whose brokers stand behind proxies: which broker hears which.

Called by `testing.Cluster` and by faults. A broker's own connections go through the other brokers' proxies, and are
known there by the process that opened them; so a broker can be cut off from the others both ways, or one way only.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from barnabas.testing.proxy import BOTH_WAYS, Clients, Proxy, Way


class Links:
    """The proxies before brokers, and those through which each broker reaches its store."""

    def __init__(
        self,
        proxies: Mapping[int, Proxy],
        pid_of: Callable[[int], int | None],
        stores: Mapping[int, Sequence[Proxy]] | None = None,
    ) -> None:
        self._proxies = proxies
        self._pid_of = pid_of
        self._stores = stores or {}

    def isolate(self, broker: int, *, store: bool = False) -> None:
        """Cut a broker off from clients and brokers, and from its store if asked to."""
        self._cut(broker, BOTH_WAYS, BOTH_WAYS)
        if store:
            self.cut_store(broker)

    def deafen(self, broker: int) -> None:
        """The broker is heard and hears nothing."""
        self._cut(broker, frozenset([Way.TO_BROKER]), frozenset([Way.FROM_BROKER]))

    def mute(self, broker: int) -> None:
        """The broker hears and is not heard."""
        self._cut(broker, frozenset([Way.FROM_BROKER]), frozenset([Way.TO_BROKER]))

    def refuse(self, broker: int) -> None:
        """Reset all connections to a broker and refuse new ones: it lives and looks dead."""
        self._proxies[broker].refuse()

    def delay(self, broker: int, seconds: float) -> None:
        """Hold all that a broker is told and answers for this long."""
        self._proxies[broker].delay(seconds)

    def part(self, one: int, other: int) -> None:
        """Cut the links between two brokers. Clients, the store and the other brokers reach both."""
        self._proxies[one].cut(clients=self._process_of(other))
        self._proxies[other].cut(clients=self._process_of(one))

    def cut_store(self, broker: int) -> None:
        """Cut a broker off from its store alone."""
        for proxy in self._stores.get(broker, ()):
            proxy.cut()

    def heal(self) -> None:
        for proxy in (*self._proxies.values(), *chain.from_iterable(self._stores.values())):
            proxy.heal()

    def _cut(self, broker: int, inward: frozenset[Way], outward: frozenset[Way]) -> None:
        self._proxies[broker].cut(inward)
        for other, proxy in self._proxies.items():
            if other != broker:
                proxy.cut(outward, clients=self._process_of(broker))

    def _process_of(self, broker: int) -> Clients:
        def pids() -> list[int]:
            pid = self._pid_of(broker)
            return [] if pid is None else [pid]

        return pids
