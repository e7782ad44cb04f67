"""How one member of a KIP-848 group gets from what it has to what it should have. Called by consumer_group.

A member first gives back what it should not have (and stays in its epoch until it says that it did), then moves to
the epoch of the target, and takes from the target what no other member holds; for the rest it waits. So a partition
has at most one holder, counting a member that was told of it and one that has yet to confirm its revocation.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import TypeAlias
from uuid import UUID

from barnabas.coordinator.consumer.assignors import Target
from barnabas.coordinator.consumer.member import Held, Member, Progress
from barnabas.errors import Code, Refused

Owned: TypeAlias = Mapping[UUID, Set[int]]
"""What a member says it has."""


def reconcile(
    member: Member,
    target_epoch: int,
    target: Target,
    owned: Owned | None,
    is_held: Callable[[UUID, int], bool],
) -> Member:
    """The member after its next step; the same where it cannot take one. `owned` is None where it did not say."""
    epoch = member.epoch
    match member.progress:
        case Progress.STABLE if epoch == target_epoch:
            return member
        case Progress.UNREVOKED:
            if _owns_any(owned, member.revoking):
                return member
            # It has kept its side of the epoch it was in, whatever the target has become since.
            epoch += 1
        case Progress.UNKNOWN:
            if owned is None or owned:
                raise Refused(
                    Code.FENCED_MEMBER_EPOCH,
                    "The member's state is from a newer coordinator; it must give up its partitions and rejoin.",
                )
            epoch = target_epoch
    return _next(member, epoch, target_epoch, target, owned, is_held)


def _next(
    member: Member,
    epoch: int,
    target_epoch: int,
    target: Target,
    owned: Owned | None,
    is_held: Callable[[UUID, int], bool],
) -> Member:
    kept = _part(member.assigned, target, inside=True)
    surplus = _part(member.assigned, target, inside=False)
    if surplus and _owns_any(owned, surplus):
        return replace(
            member,
            progress=Progress.UNREVOKED,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=surplus,
        )
    assigned = {topic: dict(partitions) for topic, partitions in kept.items()}
    waits = False
    for topic, partitions in target.items():
        for partition in partitions - kept.get(topic, {}).keys():
            if is_held(topic, partition):
                waits = True
            else:
                assigned.setdefault(topic, {})[partition] = target_epoch
    return replace(
        member,
        progress=Progress.UNRELEASED if waits else Progress.STABLE,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking={},
    )


def owns_only(owned: Owned | None, assigned: Held) -> bool:
    """Whether all that a member says it has is its own. One that does not say is not believed."""
    return owned is not None and all(
        partitions <= assigned.get(topic, {}).keys() for topic, partitions in owned.items()
    )


def _owns_any(owned: Owned | None, held: Held) -> bool:
    if owned is None:
        return True
    return any(not partitions.isdisjoint(held.get(topic, ())) for topic, partitions in owned.items())


def _part(assigned: Held, target: Target, *, inside: bool) -> dict[UUID, dict[int, int]]:
    """What of an assignment is in the target, or what is not."""
    found: dict[UUID, dict[int, int]] = {}
    for topic, partitions in assigned.items():
        wanted = target.get(topic, frozenset())
        part = {p: epoch for p, epoch in partitions.items() if (p in wanted) == inside}
        if part:
            found[topic] = part
    return found
