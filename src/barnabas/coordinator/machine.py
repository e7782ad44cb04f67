"""What a coordinator is to the broker that hosts it, whatever it coordinates. PURE.

Events come in (requests, time, changed topics), effects go out: records to append, answers to give. What must last
changes by `apply` alone, which loading calls too. `GroupCoordinator` is one; a neighbour needs no more than this.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from barnabas.config import BrokerConfig
from barnabas.coordinator.effects import Context, TopicChanges, TopicFacts
from barnabas.errors import Code
from barnabas.types import Buffer


class Wanted(Protocol):
    """What a coordinator wants done: see `effects`, whose records are those of groups."""

    records: list[Any]
    replies: list[tuple[Any, Any]]

    @property
    def sends(self) -> Sequence[Any]:
        """What is to be told to others, once all records are safe."""


class Machine(Protocol):
    """A coordinator of one partition of its topic."""

    @property
    def deadline(self) -> int:
        """When `tick` ought to be called."""

    def handle(self, request: Any, context: Context, now: int, token: Any) -> Wanted:
        """Work on a request. Its answer, under `token`, comes with these effects or with later ones."""

    def tick(self, now: int) -> Wanted:
        """Do what is due."""

    def topics_changed(
        self, topics: Mapping[str, TopicFacts], now: int, changes: TopicChanges | None = None
    ) -> Wanted:
        """The cluster has these topics now."""

    def apply(self, record: Any) -> None:
        """Become what the log says."""

    def apply_in(self, producer_id: int, record: Any) -> None:
        """Keep what the log says in a producer's transaction, until that ends."""

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Become what was kept of a producer, or forget it."""

    def loaded(self, now: int) -> Wanted:
        """All of the log has been applied: from here on time counts."""

    def resign(self, code: Code) -> Wanted:
        """Answer all waiting requests: another coordinator has the partition now."""


M_co = TypeVar("M_co", bound=Machine, covariant=True)


class Factory(Protocol[M_co]):
    """Makes the coordinators of one topic, and knows the bytes of their records. A module can be one."""

    def make(self, config: BrokerConfig, topics: Mapping[str, TopicFacts], /) -> M_co: ...
    def encode(self, record: Any, /) -> tuple[bytes, bytes | None]:
        """Key and value. Raises Malformed."""

    def decode(self, key: Buffer, value: Buffer | None, /) -> Any:
        """The record; None for one that is not ours. Raises Malformed."""
