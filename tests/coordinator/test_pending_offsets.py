"""Offsets that a group commits in a transaction: pending until the marker, then the group's or forgotten."""

import pytest

from barnabas.coordinator.coordinator import GroupCoordinator
from barnabas.coordinator.effects import Context
from barnabas.coordinator.records import decode, encode
from barnabas.errors import Code, Refused
from barnabas.wire.messages.groups import DeleteGroupsRequest
from barnabas.wire.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from barnabas.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.coordinator.shell import TOPICS, config

GROUP = "readers"
NOW = 1_000_000


class Groups:
    """A coordinator with a log: what is appended goes through bytes, in a transaction or outside of one."""

    def __init__(self) -> None:
        self.log: list[tuple[int | None, bytes, bytes | None]] = []
        self.coordinator = GroupCoordinator(config(), TOPICS)
        self.coordinator.loaded(NOW)

    def send(self, request: object, producer_id: int | None = None) -> object:
        effects = self.coordinator.handle(request, Context(9), NOW, "token")
        for record in effects.records:
            key, value = encode(record)
            self.log.append((producer_id, key, value))
            self._apply(producer_id, key, value)
        ((_, answer),) = effects.replies
        if isinstance(answer, Refused):
            raise answer
        return answer

    def _apply(self, producer_id: int | None, key: bytes, value: bytes | None) -> None:
        record = decode(key, value)
        assert record is not None
        if producer_id is None:
            self.coordinator.apply(record)
        else:
            self.coordinator.apply_in(producer_id, record)

    def commit_in(self, producer_id: int, offset: int, **member: object) -> TxnOffsetCommitResponse:
        topic = TxnOffsetCommitRequestTopic("orders", [TxnOffsetCommitRequestPartition(0, offset)])
        request = TxnOffsetCommitRequest("id", GROUP, producer_id, 0, topics=[topic], **member)  # type: ignore[arg-type]
        answer = self.send(request, producer_id)
        assert isinstance(answer, TxnOffsetCommitResponse)
        return answer

    def commit(self, offset: int) -> None:
        topic = OffsetCommitTopic("orders", [OffsetCommitPartition(0, offset)])
        self.send(OffsetCommitRequest(GROUP, topics=[topic]))

    def end(self, producer_id: int, *, commit: bool) -> None:
        self.coordinator.end_transaction(producer_id, commit=commit)

    def fetched(self, *, stable: bool = False, named: bool = True) -> tuple[int, int]:
        """Offset and error of the one partition."""
        topics = [OffsetFetchTopic("orders", [0])] if named else None
        request = OffsetFetchRequest(groups=[OffsetFetchGroup(GROUP, topics=topics)], require_stable=stable)
        (found,) = self.send(request).groups[0].topics  # type: ignore[attr-defined]
        (row,) = found.partitions
        return row.committed_offset, row.error_code


@pytest.mark.parametrize(("commit", "offset"), [(True, 5), (False, 3)])
def test_an_offset_counts_when_its_transaction_is_committed(commit: bool, offset: int) -> None:
    groups = Groups()
    groups.commit(3)
    groups.commit_in(7, 5)
    assert groups.fetched() == (3, Code.NONE)
    groups.end(7, commit=commit)
    assert groups.fetched() == (offset, Code.NONE)
    assert not groups.coordinator.pending


@pytest.mark.parametrize("named", [True, False])
def test_a_reader_that_wants_what_is_stable_has_to_wait(named: bool) -> None:
    groups = Groups()
    groups.commit_in(7, 5)
    assert groups.fetched(stable=True, named=named) == (-1, Code.UNSTABLE_OFFSET_COMMIT)
    groups.end(7, commit=True)
    assert groups.fetched(stable=True, named=named) == (5, Code.NONE)


def test_an_end_of_another_producer_says_nothing() -> None:
    groups = Groups()
    groups.commit_in(7, 5)
    groups.end(8, commit=True)
    assert groups.fetched(stable=True) == (-1, Code.UNSTABLE_OFFSET_COMMIT)


def test_the_last_offset_of_a_transaction_counts() -> None:
    groups = Groups()
    groups.commit_in(7, 5)
    groups.commit_in(7, 6)
    groups.end(7, commit=True)
    assert groups.fetched() == (6, Code.NONE)


def test_of_two_transactions_the_one_that_ends_last_counts() -> None:
    groups = Groups()
    groups.commit_in(7, 5)
    groups.commit_in(8, 6)
    groups.end(8, commit=True)
    assert groups.fetched(stable=True) == (-1, Code.UNSTABLE_OFFSET_COMMIT)
    groups.end(7, commit=False)
    assert groups.fetched(stable=True) == (6, Code.NONE)


def test_a_plain_commit_that_comes_later_in_the_log_counts() -> None:
    groups = Groups()
    groups.commit_in(7, 5)
    groups.commit(9)
    assert groups.fetched(stable=True) == (-1, Code.UNSTABLE_OFFSET_COMMIT)
    groups.end(7, commit=True)
    assert groups.fetched(stable=True) == (9, Code.NONE)


def test_a_group_that_is_deleted_takes_what_is_pending_with_it() -> None:
    groups = Groups()
    groups.commit(1)
    groups.commit_in(7, 5)
    groups.send(DeleteGroupsRequest([GROUP]))
    groups.end(7, commit=True)
    assert groups.fetched() == (-1, Code.NONE)


@pytest.mark.parametrize(
    ("member", "code"),
    [
        ({"generation_id": 3, "member_id": "m"}, Code.ILLEGAL_GENERATION),
        ({"generation_id": -1, "member_id": ""}, Code.NONE),
    ],
)
def test_a_member_of_a_group_that_is_not_there_is_refused(member: dict[str, object], code: Code) -> None:
    groups = Groups()
    if code is Code.NONE:
        groups.commit_in(7, 5, **member)
        return
    with pytest.raises(Refused) as refused:
        groups.commit_in(7, 5, **member)
    assert refused.value.code is code
    assert groups.log == []


def test_a_topic_that_is_not_there_is_refused_and_leaves_nothing_pending() -> None:
    groups = Groups()
    topic = TxnOffsetCommitRequestTopic("unknown", [TxnOffsetCommitRequestPartition(0, 1)])
    answer = groups.send(TxnOffsetCommitRequest("id", GROUP, 7, 0, topics=[topic]), 7)
    assert answer.topics[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[attr-defined]
    assert not groups.coordinator.pending
