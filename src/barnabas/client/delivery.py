"""Settles batches: sends them to their leaders, tries again what may pass, numbers them for idempotence.

Used by `producer`. Always holds: of a partition one batch is on its way at a time, so order survives a retry;
a batch keeps its sequence number until it is stored; a batch whose fate is unknown ends its producer id, so
that its number is never given to other records.
"""

import time
from collections import deque
from collections.abc import Iterable

from barnabas.client.batches import BatchState
from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.failures import RETRIABLE, STALE, Unreachable, check
from barnabas.errors import Code, Refused
from barnabas.types import TopicPartition
from barnabas.wire.batch import encode_batch
from barnabas.wire.compression import Compression
from barnabas.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from barnabas.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse

_NOT_STORED = frozenset(
    {
        Code.MESSAGE_TOO_LARGE,
        Code.RECORD_LIST_TOO_LARGE,
        Code.INVALID_RECORD,
        Code.INVALID_TIMESTAMP,
        Code.INVALID_REQUIRED_ACKS,
        Code.UNSUPPORTED_COMPRESSION_TYPE,
        Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Refusals that leave no doubt: nothing was written, and the sequence number is free again."""

_Queues = dict[TopicPartition, deque[BatchState]]
_Problems = dict[TopicPartition, Refused]


class Delivery:
    """The sending half of a producer."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int,
        idempotent: bool,
        codec: Compression,
        max_request_size: int,
        request_timeout_ms: int,
        delivery_timeout_ms: int,
        retry_backoff_ms: int,
    ) -> None:
        self._cluster = cluster
        self._acks = acks
        self._idempotent = idempotent
        self._codec = codec
        self._max_request_size = max_request_size
        self._request_timeout_ms = request_timeout_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._backoff = retry_backoff_ms / 1000
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    def settle(self, batches: Iterable[BatchState]) -> Refused | None:
        """Store these batches, one a partition, or learn why not; the first failure comes back."""
        queues: _Queues = {batch.partition: deque([batch]) for batch in batches}
        deadline = time.monotonic() + self._delivery_timeout_ms / 1000
        pause = self._backoff
        failure: Refused | None = None
        in_doubt = False
        while queues:
            problems = self._try([queue[0] for queue in queues.values()])
            is_last_try = time.monotonic() + pause > deadline
            for partition, queue in list(queues.items()):
                problem = problems.get(partition)
                if problem is None:
                    queue.popleft()
                elif problem.code is Code.MESSAGE_TOO_LARGE and len(queue[0].records) > 1:
                    queue.extendleft(reversed(queue.popleft().split()))
                elif is_last_try or problem.code not in RETRIABLE:
                    failure = failure or problem
                    in_doubt |= problem.code not in _NOT_STORED
                    _give_up(queue, problem)
                if not queue:
                    del queues[partition]
            if any(problem.code in STALE for problem in problems.values()):
                self._cluster.forget()
            if queues and any(problem.code in RETRIABLE for problem in problems.values()):
                time.sleep(pause)
                pause = min(pause * 2, 1.0)
        if in_doubt:
            self._producer_id = -1
            self._sequences.clear()
        return failure

    def _try(self, batches: list[BatchState]) -> _Problems:
        """Send each batch once. What is not among the problems is stored and settled."""
        problems: _Problems = {}
        try:
            self._need_producer_id()
        except Refused as problem:
            return dict.fromkeys((batch.partition for batch in batches), problem)
        asked: list[tuple[Connection, list[BatchState]]] = []
        for connection, group in self._requests(batches, problems):
            try:
                connection.send(self._request(group), ProduceResponse if self._acks else None)
                asked.append((connection, group))
            except Refused as problem:
                problems.update((batch.partition, problem) for batch in group)
        for connection, group in asked:
            try:
                if self._acks:
                    self._read_answer(connection, group, problems)
                else:
                    for batch in group:
                        batch.is_settled = True
            except Refused as problem:
                problems.update((batch.partition, problem) for batch in group)
        return problems

    def _requests(
        self, batches: list[BatchState], problems: _Problems
    ) -> list[tuple[Connection, list[BatchState]]]:
        """Batches by leader, as many to a request as max.request.size allows."""
        groups: dict[Connection, list[list[BatchState]]] = {}
        for batch in batches:
            try:
                leader = self._cluster.leader_of(batch.partition)
            except Refused as problem:
                problems[batch.partition] = problem
                continue
            requests = groups.setdefault(leader, [[]])
            if requests[-1] and batch.size + sum(each.size for each in requests[-1]) > self._max_request_size:
                requests.append([])
            requests[-1].append(batch)
        return [(leader, group) for leader, requests in groups.items() for group in requests]

    def _request(self, batches: list[BatchState]) -> ProduceRequest:
        topics: dict[str, ProduceTopic] = {}
        for batch in batches:
            encoded = encode_batch(
                batch.records,
                codec=self._codec,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=self._sequences.get(batch.partition, 0) if self._idempotent else -1,
            )
            topic = topics.setdefault(batch.partition.topic, ProduceTopic(name=batch.partition.topic))
            topic.partition_data.append(
                ProducePartition(index=batch.partition.partition, records=memoryview(encoded))
            )
        return ProduceRequest(
            acks=self._acks, timeout_ms=self._request_timeout_ms, topic_data=list(topics.values())
        )

    def _read_answer(self, connection: Connection, batches: list[BatchState], problems: _Problems) -> None:
        answer: ProduceResponse = connection.receive()
        found = {
            TopicPartition(topic.name, each.index): each
            for topic in answer.responses
            for each in topic.partition_responses
        }
        for batch in batches:
            partition = batch.partition
            try:
                if partition not in found:
                    raise Unreachable(f"{connection.address} gave no answer for partition {partition}.")
                self._settle_one(batch, found[partition])
            except Refused as problem:
                problems[partition] = problem

    def _settle_one(self, batch: BatchState, answer: ProducePartitionResponse) -> None:
        # A duplicate was stored before, by a try whose answer got lost: that is what was wanted.
        if answer.error_code != Code.DUPLICATE_SEQUENCE_NUMBER:
            check(answer.error_code, f"Partition {batch.partition}", answer.error_message)
            batch.base_offset = answer.base_offset
            batch.append_time = answer.log_append_time_ms
        batch.is_settled = True
        if self._idempotent:
            following = self._sequences.get(batch.partition, 0) + len(batch.records)
            self._sequences[batch.partition] = following & 0x7FFFFFFF

    def _need_producer_id(self) -> None:
        if not self._idempotent or self._producer_id >= 0:
            return
        answer = self._cluster.any().call(InitProducerIdRequest(), InitProducerIdResponse)
        check(answer.error_code, "A producer id")
        self._producer_id = answer.producer_id
        self._producer_epoch = answer.producer_epoch


def _give_up(queue: deque[BatchState], problem: Refused) -> None:
    """Nothing behind a failed batch may be stored: it would take its sequence number."""
    for batch in queue:
        batch.failure = problem
        batch.is_settled = True
    queue.clear()
