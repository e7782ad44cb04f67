"""WriteTxnMarkers v1-2: ends transactions in the partitions that this broker leads, as their coordinators have decided.

Each partition is answered for itself, when its marker is below the high watermark. In a partition of
`__consumer_offsets` the marker is the group coordinator's business as well: what was committed in the transaction
counts from there on, or never did.
"""

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.groups import OFFSETS_TOPIC
from barnabas.broker.network.connection import Connection
from barnabas.broker.network.promise import Promise
from barnabas.broker.partitions.acceptance import ALL, when_stored
from barnabas.broker.partitions.acknowledgements import Outcome
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.log.log import Appended
from barnabas.types import Millis, Offset, ProducerId
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

_NOT_THERE_YET = frozenset(
    {Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR}
)
"""What a group coordinator says for the moment; to the coordinator of a transaction that is a leader still to come."""


def refuse_all(request: WriteTxnMarkersRequest, version: int, refused: Refused) -> WriteTxnMarkersResponse:
    """The same error for each partition: there is no place for one on top."""
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(index, refused.code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


@handles(ApiKey.WRITE_TXN_MARKERS, refuse_all)
def write_txn_markers(
    broker: "Broker", request: WriteTxnMarkersRequest, peer: Connection
) -> WriteTxnMarkersResponse | Promise[WriteTxnMarkersResponse]:
    return write_markers(broker, request)


def write_markers(
    broker: "Broker", request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Promise[WriteTxnMarkersResponse]:
    """The same without a connection: for the coordinators of this broker."""
    writing = Writing(broker)
    response = WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [writing.write(marker, topic.name, index) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
    return writing.finished(response)


class Writing:
    """Mutable: markers on their way below the high watermark."""

    __slots__ = ("_answer", "_broker", "_left", "_now", "_response")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._now: Millis = broker.clock.now()
        self._left = 0
        self._response = WriteTxnMarkersResponse()
        self._answer: Promise[WriteTxnMarkersResponse] = Promise()

    def write(self, marker: WritableTxnMarker, topic: str, index: int) -> WritableTxnMarkerPartitionResult:
        """Write one marker to a partition; its part of the answer, which may change until all is done."""
        row = WritableTxnMarkerPartitionResult(index)
        try:
            leader = self._broker.replicas.leader(topic, index)
            place = self._append(marker, leader)
        except Refused as refused:
            self._broker.note_refusal("WriteTxnMarkers", refused, topic, index)
            row.error_code = Code.NOT_LEADER_OR_FOLLOWER if refused.code in _NOT_THERE_YET else refused.code
            return row
        if place >= leader.high_watermark:
            self._left += 1
            self._when_stored(leader, place).add_done_callback(partial(self._stored, row))
        return row

    def _append(self, marker: WritableTxnMarker, leader: Leader) -> Offset:
        write = partial(
            leader.write_marker,
            ProducerId(marker.producer_id),
            marker.producer_epoch,
            marker.coordinator_epoch,
            commit=marker.transaction_result,
            now=self._now,
            transaction_version=marker.transaction_version,
        )
        if leader.tp.topic != OFFSETS_TOPIC.name:
            return write()
        return self._broker.groups.end_transaction(
            leader.tp.partition, ProducerId(marker.producer_id), commit=marker.transaction_result, write=write
        )

    def _when_stored(self, leader: Leader, place: Offset) -> Outcome:
        timeout_ms = self._broker.config.request_timeout_ms
        return when_stored(self._broker, leader, Appended(place, place, self._now, False), ALL, timeout_ms)

    def _stored(self, row: WritableTxnMarkerPartitionResult, outcome: Outcome) -> None:
        refused = outcome.result()
        if refused is not None:
            row.error_code = refused.code
        self._left -= 1
        if not self._left:
            self._answer.give(self._response)

    def finished(
        self, response: WriteTxnMarkersResponse
    ) -> WriteTxnMarkersResponse | Promise[WriteTxnMarkersResponse]:
        """The answer, or, while markers wait for other replicas or the disk, its promise."""
        self._response = response
        return self._answer if self._left else response
