"""What a member of a group is to its user, whichever protocol it speaks: what it gives, takes, has lost, and why.

PURE. The base of `classic_member` and `consumer_member`; driven by `membership` and `group_session`. Always holds:
`assignment` is what the group wants the user to read, `given` is what the user reads; where they differ there is a
handover for the user's next poll.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from barnabas.client.network.failures import check
from barnabas.errors import Code, Refused
from barnabas.types import TopicPartition

Partitions: TypeAlias = tuple[TopicPartition, ...]

NEVER = float("inf")

LATER = frozenset(
    {
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.REQUEST_TIMED_OUT,
        Code.NETWORK_EXCEPTION,
    }
)
"""Answers after which the same request may succeed."""

_FOR_GOOD = frozenset({Code.FENCED_INSTANCE_ID, Code.UNRELEASED_INSTANCE_ID})


class Phase(Enum):
    """Where a member stands."""

    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    REVOKING = "revoking"
    """The user has partitions to give back before the member can join again; until then it sends heartbeats."""
    AWAY = "away"
    """In no group until the user polls again: it was late, the group went on without it, or something is wrong."""


class Handover(NamedTuple):
    """What the user's next poll has to do: one of these at a time."""

    lost: Partitions = ()
    """Others may have them already: nothing of these can be committed any more."""
    revoked: Partitions = ()
    assigned: Partitions | None = None
    """None where the group has not shared anything out since the last time."""


class Member(ABC):
    """Mutable: one member. Times are seconds of any clock that never goes back."""

    def __init__(
        self,
        group: str,
        topics: Iterable[str],
        *,
        instance_id: str | None,
        max_poll_interval_ms: int,
        retry_backoff_ms: int,
    ) -> None:
        self.group = group
        self.topics = sorted(set(topics))
        self.instance_id = instance_id
        self.id = ""
        self.generation = -1
        """Or the member epoch, in the protocol that has those."""
        self.phase = Phase.JOINING
        self.assignment: Partitions = ()
        self.given: Partitions = ()
        self.is_waiting = False
        """A request is under way."""
        self.rebalance_timeout_ms = max_poll_interval_ms
        self._max_poll_interval = max_poll_interval_ms / 1000
        self._backoff = retry_backoff_ms / 1000
        self._due = 0.0
        self._poll_by = NEVER
        self._failure: Refused | None = None
        self._is_lost = False
        self._has_news = False

    @property
    def due(self) -> float:
        """When `next_request` has the next one, if nothing happens before."""
        if self.phase is Phase.AWAY or self.is_waiting:
            return NEVER
        return min(self._due, self._poll_by)

    @property
    def is_settled(self) -> bool:
        """The group has shared out, and the user has what it was given."""
        return self.phase is Phase.STABLE and self.handover is None

    @property
    def is_away(self) -> bool:
        return self.phase is Phase.AWAY

    @property
    def is_stuck(self) -> bool:
        """There is a failure to be told."""
        return self._failure is not None

    @property
    def may_commit(self) -> bool:
        """Whether what the user reads is the member's still, so far as it knows."""
        return not self._is_lost and self.generation >= 0

    @property
    def topics_to_assign(self) -> set[str]:
        """The topics that the whole group subscribes to, while this member leads it; none otherwise."""
        return set()

    # The user

    @property
    def handover(self) -> Handover | None:
        """What the user's poll has to do: to give back and say `gave_back`, to take and say `took_over`."""
        if self._is_lost:
            return Handover(lost=self.given)
        if self.given is self.assignment and not self._has_news:
            return None  # nearly always
        wanted = set(self.assignment)
        revoked = tuple(each for each in self.given if each not in wanted)
        if revoked:
            return Handover(revoked=revoked)
        if not self._has_news:
            return None
        known = set(self.given)
        return Handover(assigned=tuple(each for each in self.assignment if each not in known))

    def gave_back(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """The user reads these no more."""
        gone = set(partitions)
        self.given = tuple(each for each in self.given if each not in gone)
        if self._is_lost:
            self._is_lost = bool(self.given)
            self._come_back(now)
        elif set(self.given) <= set(self.assignment):
            self._is_free(now)

    def took_over(self, now: float) -> None:
        """The user reads all that is assigned."""
        self.given = self.assignment
        self._has_news = False
        self._has_all(now)

    def polls(self, now: float) -> None:
        """The user is in poll, and takes part for as long as that lasts."""
        self._poll_by = NEVER
        self._come_back(now)

    def works(self, now: float) -> None:
        """The user has left poll: the next one has to come within max.poll.interval.ms."""
        self._poll_by = now + self._max_poll_interval

    def failure(self) -> Refused | None:
        """Why the member cannot be in its group, told once; the next poll tries again, unless another has its name."""
        found = self._failure
        if found is not None and found.code not in _FOR_GOOD:
            self._failure = None
        return found

    def subscribe(self, topics: Iterable[str], now: float) -> None:
        """Ask for other topics."""
        wanted = sorted(set(topics))
        if wanted != self.topics:
            self.topics = wanted
            self.rebalance(now)

    def refuse(self, why: Refused) -> None:
        """The request under way can never succeed."""
        self.is_waiting = False
        self._lose(forget_id=False)
        self.phase = Phase.AWAY
        self._failure = why

    def fail(self, now: float) -> None:
        """The request under way is lost, and its answer with it. It is sent again after a while."""
        self.is_waiting = False
        self._due = now + self._backoff

    def _come_back(self, now: float) -> None:
        if self.phase is Phase.AWAY and not self._is_lost and self._failure is None:
            self._join_again(now)

    def _join_again(self, now: float) -> None:
        self.phase = Phase.JOINING
        self._due = now

    def _give_up(self, code: int, message: str | None = None) -> None:
        self._lose(forget_id=False)
        self.phase = Phase.AWAY
        try:
            check(code, f"Group {self.group!r}", message)
        except Refused as failure:
            self._failure = failure

    def _lose(self, *, forget_id: bool) -> None:
        self.assignment = ()
        self._has_news = False
        self._is_lost = bool(self.given)
        self.phase = Phase.AWAY if self.given else Phase.JOINING
        self.generation = -1
        if forget_id:
            self.id = ""

    def know(self, names: Mapping[UUID, str]) -> bool:
        """Topics by their ids, where these are what the group speaks of; False where one that matters is missing."""
        return True

    # What each protocol does in its own way

    @abstractmethod
    def rebalance(self, now: float) -> None:
        """Ask for another assignment: topics have changed."""

    @abstractmethod
    def next_request(self, now: float, partitions: Mapping[str, int]) -> Any:
        """What is to be sent now. `partitions` counts those of `topics_to_assign`; unknown topics are left out.

        What says goodbye is sent when the user has not polled in time, and its answer is ignored.
        """

    @abstractmethod
    def leave_request(self, reason: str = "the consumer is closed") -> Any:
        """Goodbye; None where there is no member id yet, or the member's name stays."""

    @abstractmethod
    def take(self, response: Any, now: float) -> None:
        """The answer to the request under way."""

    @abstractmethod
    def commit_refused(self, code: int, generation: int, now: float) -> None:
        """A commit was refused; the group has told as much as by a heartbeat, if it was this generation's."""

    @abstractmethod
    def _is_free(self, now: float) -> None:
        """The user has given back all that is not assigned."""

    @abstractmethod
    def _has_all(self, now: float) -> None:
        """The user has taken all that is assigned."""
