"""What groups have read: OffsetCommit v2-9, OffsetFetch v1-9, OffsetDelete v0. The group's coordinator decides."""

from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators.calls import answer_of, ask
from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
from barnabas.wire.messages.offsets import (
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
    OffsetDeleteRequest,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

SEVERAL_GROUPS_SINCE = 8
ERROR_ON_TOP_SINCE = 2


def _refuse_commit(request: OffsetCommitRequest, version: int, refused: Refused) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitTopicResult(
                topic.name,
                [
                    OffsetCommitPartitionResult(part.partition_index, refused.code)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(ApiKey.OFFSET_COMMIT, _refuse_commit, with_header=True)
def commit_offsets(
    broker: "Broker", request: OffsetCommitRequest, peer: Connection, header: RequestHeader
) -> Any:
    return ask(broker, request.group_id, request, header, peer)


def _refuse_fetch(request: OffsetFetchRequest, version: int, refused: Refused) -> OffsetFetchResponse:
    if version >= SEVERAL_GROUPS_SINCE:
        rows = [OffsetFetchGroupResult(group.group_id, error_code=refused.code) for group in request.groups]
        return OffsetFetchResponse(error_code=refused.code, groups=rows)
    return _for_one(request, OffsetFetchGroupResult(request.group_id, error_code=refused.code), version)


@handles(ApiKey.OFFSET_FETCH, _refuse_fetch, with_header=True)
async def fetch_offsets(
    broker: "Broker", request: OffsetFetchRequest, peer: Connection, header: RequestHeader
) -> OffsetFetchResponse:
    several = header.api_version >= SEVERAL_GROUPS_SINCE
    groups = request.groups if several else [OffsetFetchGroup(request.group_id, topics=request.topics)]
    results = []
    for group in groups:
        one = OffsetFetchRequest(groups=[group], require_stable=request.require_stable)
        try:
            results += (await answer_of(broker, group.group_id, one, header, peer)).groups
        except Refused as refused:
            results.append(OffsetFetchGroupResult(group.group_id, error_code=refused.code))
    if several:
        return OffsetFetchResponse(groups=results)
    return _for_one(request, results[0], header.api_version)


def _for_one(
    request: OffsetFetchRequest, result: OffsetFetchGroupResult, version: int
) -> OffsetFetchResponse:
    """The answer in the form for one group. Version 1 has no place for an error but at each partition."""
    if result.error_code == Code.NONE or version >= ERROR_ON_TOP_SINCE:
        return OffsetFetchResponse(topics=result.topics, error_code=result.error_code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchTopicResult(
                topic.name,
                [
                    OffsetFetchPartitionResult(index, -1, error_code=result.error_code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ]
    )


@handles(ApiKey.OFFSET_DELETE, with_header=True)
def delete_offsets(
    broker: "Broker", request: OffsetDeleteRequest, peer: Connection, header: RequestHeader
) -> Any:
    return ask(broker, request.group_id, request, header, peer)
