"""Owns the members of a classic group, and which protocols they all speak. Called by `classic` alone.

Always holds: a group.instance.id belongs to one member; `supported` counts the members that speak a protocol.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from barnabas.coordinator.effects import NEVER, Context
from barnabas.coordinator.records import MemberMetadata
from barnabas.errors import Code, Refused
from barnabas.wire.messages.groups import JoinGroupRequest


@dataclass(slots=True)
class MemberState:
    """Mutable: one member. Its `protocols` are (name, metadata) in the order it prefers them."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    deadline: int = NEVER
    is_new: bool = False
    """Waits for its first generation: it cannot know its id yet, so no heartbeat can be asked of it."""
    synced: bool = True
    """Has asked for its assignment in this generation."""

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def is_alive(self, now: int) -> None:
        self.deadline = now + self.session_timeout_ms

    def recorded(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """The member as the log will know it: of its protocols, only the one the group has chosen."""
        return MemberMetadata(
            member_id=self.id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )


def protocols_of(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """Version 0 knows no such timeout: a session's length stands for it."""
    timeout = request.rebalance_timeout_ms
    return request.session_timeout_ms if timeout < 0 else timeout


def member_from_request(member_id: str, request: JoinGroupRequest, context: Context) -> MemberState:
    return MemberState(
        member_id,
        request.group_instance_id,
        context.client_id,
        context.client_host,
        rebalance_timeout_of(request),
        request.session_timeout_ms,
        protocols_of(request),
    )


def member_from_record(row: MemberMetadata, protocol: str | None) -> MemberState:
    timeout = row.rebalance_timeout_ms
    return MemberState(
        row.member_id,
        row.group_instance_id,
        row.client_id,
        row.client_host,
        row.session_timeout_ms if timeout < 0 else timeout,
        row.session_timeout_ms,
        ((protocol or "", row.subscription),),
        row.assignment,
    )


class Members:
    """Mutable: the members, in the order they came."""

    __slots__ = ("_by_id", "_static", "_supported")

    def __init__(self, members: Iterable[MemberState] = ()) -> None:
        self._by_id: dict[str, MemberState] = {}
        self._static: dict[str, str] = {}
        self._supported: Counter[str] = Counter()
        for member in members:
            self.add(member)

    def __iter__(self) -> Iterator[MemberState]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> MemberState:
        return self._by_id[member_id]

    def find(self, member_id: str) -> MemberState | None:
        return self._by_id.get(member_id)

    def holder(self, instance_id: str) -> MemberState | None:
        """The member that has this group.instance.id."""
        member_id = self._static.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def get(self, member_id: str, instance_id: str | None) -> MemberState:
        """The member that asks, or why it may not: it is unknown, or another one has taken its place."""
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is None:
                raise Refused(Code.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise Refused(Code.FENCED_INSTANCE_ID)
        member = self._by_id.get(member_id)
        if member is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID)
        return member

    def first(self) -> MemberState | None:
        return next(iter(self._by_id.values()), None)

    def add(self, member: MemberState) -> None:
        self._by_id[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id
        self._supported.update({name for name, _ in member.protocols})

    def remove(self, member_id: str) -> None:
        member = self._by_id.pop(member_id)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self._supported.subtract({name for name, _ in member.protocols})

    def change(self, member: MemberState, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Let a member speak other protocols, or the same with other metadata."""
        self._supported.subtract({name for name, _ in member.protocols})
        member.protocols = protocols
        self._supported.update({name for name, _ in protocols})

    def replaced(self, old: MemberState, new: MemberState) -> "Members":
        """The members as they are when `new` takes the place of `old`."""
        return Members(new if member is old else member for member in self)

    def assignments(self) -> dict[str, bytes]:
        return {member.id: member.assignment for member in self}

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join again."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def any_common(self, names: Sequence[str]) -> bool:
        """Whether all members speak one of these protocols."""
        return any(self._supported[name] == len(self) for name in names)

    def elected_protocol(self) -> str:
        """Of the protocols all members speak the one most of them prefer."""
        total = len(self)
        common = {name for name, count in self._supported.items() if count == total}
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in self)
        # The earliest of equals, so that the same members always agree on the same.
        return max(votes, key=votes.__getitem__)
