"""What groups have read: OffsetCommit v2-9, OffsetFetch v1-9, OffsetDelete v0. The group's coordinator decides."""

from typing import TYPE_CHECKING, Any

from barnabas.broker.asking import ask, ask_each, say_no
from barnabas.broker.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
from barnabas.wire.messages.offsets import (
    OffsetCommitRequest,
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


@handles(ApiKey.OFFSET_COMMIT, say_no, with_header=True)
def commit_offsets(
    broker: "Broker", request: OffsetCommitRequest, peer: Connection, header: RequestHeader
) -> Any:
    return ask(broker, request.group_id, request, header, peer)


def _say_no_to_fetch(request: OffsetFetchRequest, version: int, refused: Refused) -> OffsetFetchResponse:
    if version >= SEVERAL_GROUPS_SINCE:
        return say_no(request, version, refused)  # type: ignore[no-any-return]
    return _for_one(request, OffsetFetchGroupResult(request.group_id, error_code=refused.code), version)


@handles(ApiKey.OFFSET_FETCH, _say_no_to_fetch, with_header=True)
async def fetch_offsets(
    broker: "Broker", request: OffsetFetchRequest, peer: Connection, header: RequestHeader
) -> OffsetFetchResponse:
    several = header.api_version >= SEVERAL_GROUPS_SINCE
    groups = request.groups if several else [OffsetFetchGroup(request.group_id, topics=request.topics)]
    parts = [
        (group.group_id, OffsetFetchRequest(groups=[group], require_stable=request.require_stable))
        for group in groups
    ]
    results = [row for answer in await ask_each(broker, parts, header, peer) for row in answer.groups]
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


@handles(ApiKey.OFFSET_DELETE, say_no, with_header=True)
def delete_offsets(
    broker: "Broker", request: OffsetDeleteRequest, peer: Connection, header: RequestHeader
) -> Any:
    return ask(broker, request.group_id, request, header, peer)
