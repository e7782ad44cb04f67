"""Owns the way to the coordinator of a group, or of a transactional id: which broker that is, until it is another.

Used by `membership`, `commits` and the producer's `transactor`, in the network's thread. Always holds: each request
ends once, in an answer or a Refused; a coordinator that says it is none, or does not answer, is looked for again.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.client.network.failures import STALE
from barnabas.client.network.network import CoordinatorKind, Network
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId
from barnabas.wire.codec import Message

M = TypeVar("M", bound=Message)

_NOT_IT = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE})


class CoordinatorLink:
    """The coordinator of one group or transactional id, as far as it is known."""

    def __init__(self, network: Network, group: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        self.group = group
        self._kind = kind
        self._network = network
        self._node: BrokerId | None = None
        self._waiting: list[Callable[[BrokerId | Refused], None]] = []

    def ask(
        self,
        request: Message,
        answer: type[M],
        done: Callable[[M | Refused], None],
        *,
        wait: float = 0.0,
        lane: str = "",
        versions: tuple[int, int] | None = None,
    ) -> None:
        """Send a request to the coordinator of the moment. Joins have a lane of their own: they take their time."""

        def found(node: BrokerId | Refused) -> None:
            if isinstance(node, Refused):
                done(node)
            else:
                self._network.ask(node, request, answer, told, wait=wait, lane=lane, versions=versions)

        def told(outcome: Any) -> None:
            if isinstance(outcome, Refused) and outcome.code in STALE:
                self._node = None
            done(outcome)

        if self._node is not None:
            found(self._node)
            return
        self._waiting.append(found)
        if len(self._waiting) == 1:
            self._network.find_coordinator(self.group, self._found, self._kind)

    def doubt(self, code: int) -> None:
        """An answer that says whether its broker is the coordinator."""
        if code in _NOT_IT:
            self._node = None

    def _found(self, node: BrokerId | Refused) -> None:
        waiting, self._waiting = self._waiting, []
        if not isinstance(node, Refused):
            self._node = node
        for each in waiting:
            each(node)
