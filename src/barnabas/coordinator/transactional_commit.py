"""A group's part in a transaction: TxnOffsetCommit is an OffsetCommit whose records wait for a producer's commit.

Called by `coordinator`. Which members may commit is the group's rule, but for one thing: a producer of before KIP-447
does not say which member it works for, and is believed.
"""

from barnabas.coordinator.group import Group, Topics
from barnabas.errors import Code, Refused
from barnabas.wire.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from barnabas.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NEWEST = 9
"""The version of OffsetCommit whose rules count: members of a KIP-848 group may commit."""

_TOLD_AS = {
    Code.STALE_MEMBER_EPOCH: Code.ILLEGAL_GENERATION,
    Code.GROUP_ID_NOT_FOUND: Code.ILLEGAL_GENERATION,
}
"""Producers know no epochs of members."""


def as_commit(request: TxnOffsetCommitRequest) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        topics=[
            OffsetCommitTopic(
                topic.name,
                [
                    OffsetCommitPartition(
                        part.partition_index,
                        part.committed_offset,
                        part.committed_leader_epoch,
                        part.committed_metadata,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def check_member(group: Group | None, commit: OffsetCommitRequest, now: int, topics: Topics) -> None:
    """Refuse a producer that works for a member which the group has moved on without."""
    says_nothing = (
        commit.generation_id_or_member_epoch < 0 and not commit.member_id and commit.group_instance_id is None
    )
    if says_nothing:
        return
    if group is None:
        if commit.generation_id_or_member_epoch >= 0:
            raise Refused(Code.ILLEGAL_GENERATION)
        return
    try:
        group.check_commit(commit, NEWEST, now, topics)
    except Refused as refused:
        raise Refused(_TOLD_AS.get(refused.code, refused.code), refused.message) from refused


def as_txn_response(response: OffsetCommitResponse) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(part.partition_index, part.error_code)
                    for part in topic.partitions
                ],
            )
            for topic in response.topics
        ]
    )
