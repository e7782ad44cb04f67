"""Promises of client/producer/accumulator.py: by tables, and by stories in a simulated world, each from one seed."""

import os

import pytest

from barnabas import errors
from barnabas.client.network.failures import Unreachable
from barnabas.client.producer.accumulator import Accumulator, size_of
from barnabas.client.producer.batches import Batch
from barnabas.client.producer.partition_state import BatchRequest, ProducerIdentity, TopicState
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition
from tests.client.producer.producer_simulation import World

SEEDS = 4000 if os.environ.get("BARNABAS_SOAK") else 300
NODE = BrokerId(0)


@pytest.mark.parametrize("seed", range(0, SEEDS, 100))
def test_neither_lost_nor_doubled_nor_reordered_whatever_the_network_does(seed: int) -> None:
    for each in range(seed, seed + 100):
        world = World(each)
        for _ in range(300):
            world.step()
        world.settle_all()
        world.judge()


@pytest.mark.parametrize("seed", range(0, SEEDS, 100))
def test_on_a_quiet_network_everything_is_stored(seed: int) -> None:
    for each in range(seed, seed + 20):
        world = World(each, faults=0.0, is_idempotent=each % 2 == 0)
        for _ in range(300):
            world.step()
        world.settle_all()
        # Without idempotence what was too large is sent again, in halves, behind what was in flight.
        world.judge(order=each % 2 == 0)
        assert all(sent.exception() is None for _, _, sent in world.sent)


def test_brokers_that_forget_the_producer_cost_nothing() -> None:
    for seed in range(100):
        world = World(seed)
        for number in range(300):
            world.step()
            if number % 50 == 0:
                world.settle_all()
                world.drain()
                world.faults = 0.3
                world.accumulator.flushing -= 1
                world.pass_time(3600.0)
                world.forget_producers()
        world.settle_all()
        world.judge()


class Desk:
    """An accumulator and its one topic, with short words for what a test does to them."""

    def __init__(self, partitions: int = 1, **settings: object) -> None:
        given = {
            "batch_size": 1000,
            "linger": 0.005,
            "buffer_memory": 100_000,
            "max_request_size": 5000,
            "max_in_flight": 5,
            "delivery_timeout": 10.0,
            "retry_backoff": 0.1,
            "retries": 1000,
            "is_idempotent": True,
            **settings,
        }
        self.accumulator = Accumulator(**given)  # type: ignore[arg-type]
        if given["is_idempotent"]:
            self.accumulator.numbers.producer = ProducerIdentity(7, 0)
        self.topic: TopicState = self.accumulator.topic("t", partitions)
        self.flights: dict[BrokerId, int] = {}

    def send(self, count: int = 1, partition: int = 0, now: float = 0.0, size: int = 68) -> list[Batch]:
        found = []
        for _ in range(count):
            state = self.topic.partitions[partition]
            value = bytes(size)
            pair = self.accumulator.append(state, value, None, (), 0, size_of(value, None, ()), now)
            assert pair is not None
            found.append(pair[0])
        return found

    def drain(self, now: float = 0.0) -> list[BatchRequest]:
        requests = self.accumulator.drain(now, lambda partition: NODE, self.flights)
        for request in requests:
            self.flights[request.node] = self.flights.get(request.node, 0) + 1
        return requests

    def introduce(self) -> None:
        """Have one record stored, so that the broker knows the producer: one batch in flight was all it got."""
        self.send()
        self.accumulator.flushing += 1
        (request,) = self.drain()
        self.accumulator.flushing -= 1
        self.accumulator.stored(request.batches[0], 0, -1)
        self.flights.clear()

    def is_without_id(self) -> bool:
        return self.accumulator.numbers.producer is None

    def sequences(self, requests: list[BatchRequest]) -> list[tuple[int, int]]:
        return [(wire.base_sequence, len(wire)) for request in requests for wire in request.batches]


def test_a_batch_lingers_and_says_until_when() -> None:
    desk = Desk()
    desk.send(now=1.0)
    assert desk.drain(1.001) == []
    assert desk.accumulator.next_at == 1.005
    assert desk.sequences(desk.drain(1.005)) == [(0, 1)]


@pytest.mark.parametrize("reason", ["full", "flush", "hurry", "starving", "no linger"])
def test_a_batch_does_not_linger_without_need(reason: str) -> None:
    desk = Desk(linger=0.0 if reason == "no linger" else 0.005)
    desk.send(11 if reason == "full" else 1)
    if reason == "flush":
        desk.accumulator.flushing += 1
    if reason == "starving":
        desk.accumulator.starving += 1
    desk.topic.partitions[0].is_hurried = reason == "hurry"
    assert len(desk.drain()) == 1


def test_what_waits_for_a_partition_goes_as_one_batch_and_for_a_broker_in_one_request() -> None:
    desk = Desk(partitions=2)
    desk.send(20, partition=0)
    desk.send(11, partition=1)
    (request,) = desk.drain()
    assert sorted(len(wire) for wire in request.batches) == [11, 20]


def test_a_request_is_no_larger_than_allowed_and_no_more_fly_than_allowed() -> None:
    desk = Desk(max_in_flight=3)
    desk.introduce()
    desk.send(200)
    requests = desk.drain()
    assert len(requests) == 3
    assert all(sum(wire.size for wire in request.batches) <= 5000 for request in requests)
    assert desk.drain() == []
    assert desk.sequences(requests) == [(1, 40), (41, 40), (81, 40)]
    desk.accumulator.stored(requests[0].batches[0], 0, -1)
    desk.flights[NODE] -= 1
    assert desk.sequences(desk.drain()) == [(121, 40)]


def test_no_partition_is_always_last() -> None:
    desk = Desk(partitions=4, max_in_flight=1)
    served = set()
    for _ in range(8):
        for partition in range(4):
            desk.send(11, partition=partition, size=300)
        (request,) = desk.drain()
        served |= {wire.owner.partition.partition for wire in request.batches}
        for wire in request.batches:
            desk.accumulator.stored(wire, 0, -1)
        desk.flights.clear()
    assert served == {0, 1, 2, 3}


def test_memory_is_held_until_the_outcome() -> None:
    desk = Desk(buffer_memory=2000)
    desk.send(20)
    state = desk.topic.partitions[0]
    assert desk.accumulator.append(state, bytes(68), None, (), 0, 100, 0.0) is None
    (request,) = desk.drain()
    assert desk.accumulator.append(state, bytes(68), None, (), 0, 100, 0.0) is None
    desk.accumulator.stored(request.batches[0], 0, -1)
    assert desk.accumulator.append(state, bytes(68), None, (), 0, 100, 0.0) is not None


def test_what_was_lost_goes_again_under_its_number_alone_and_first() -> None:
    desk = Desk(linger=0.0, max_request_size=1000)
    desk.introduce()
    desk.send(30)
    first, second, third, *_ = desk.drain()
    for request in (second, first, third):
        desk.accumulator.lost(request.batches[0], Unreachable("cut"), 0.0, was_sent=True)
    desk.flights.clear()
    assert desk.drain(0.05) == [], "not before the pause"
    (again,) = desk.drain(0.2)
    assert desk.sequences([again]) == desk.sequences([first])
    assert desk.drain(0.2) == [], "one at a time"
    desk.accumulator.stored(again.batches[0], 0, -1)
    desk.send(1)
    assert desk.sequences(desk.drain(0.3)) == desk.sequences([second])


def test_a_gap_with_nothing_before_it_begins_a_new_epoch() -> None:
    desk = Desk(linger=0.0, max_request_size=1000, partitions=2)
    desk.introduce()
    desk.send(5, partition=1)
    (other,) = desk.drain()
    desk.accumulator.stored(other.batches[0], 0, -1)
    desk.flights.clear()
    desk.send(20)
    first, second = desk.drain()
    gap = Refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    desk.accumulator.refused(second.batches[0], gap, 0.0)
    assert not desk.topic.partitions[0].needs_epoch, "the first may still come"
    desk.accumulator.refused(first.batches[0], gap, 0.0)
    desk.flights.clear()
    (again,) = desk.drain(1.0)
    assert desk.sequences([again]) == [(0, len(first.batches[0]))]
    assert again.batches[0].producer == ProducerIdentity(7, 1)
    desk.send(1, partition=1)
    (of_other,) = desk.drain(1.0)
    assert of_other.batches[0].producer == ProducerIdentity(7, 1)
    assert of_other.batches[0].base_sequence == 0


def test_nothing_overtakes_the_first_batch_that_a_broker_sees_of_a_producer() -> None:
    desk = Desk(linger=0.0, max_request_size=1000)
    desk.send(30)
    (first,) = desk.drain()
    assert desk.drain() == []
    desk.accumulator.stored(first.batches[0], 0, -1)
    assert len(desk.drain()) == 2


def test_after_the_last_epoch_another_id_is_needed() -> None:
    desk = Desk(linger=0.0)
    desk.accumulator.numbers.producer = ProducerIdentity(7, 32_766)
    desk.send()
    (request,) = desk.drain()
    desk.accumulator.refused(request.batches[0], Refused(Code.UNKNOWN_PRODUCER_ID), 0.0)
    desk.flights.clear()
    assert desk.drain(1.0) == []
    assert desk.is_without_id()
    desk.accumulator.numbers.producer = ProducerIdentity(8, 0)
    (again,) = desk.drain(1.0)
    assert again.batches[0].producer == ProducerIdentity(8, 0)
    assert again.batches[0].base_sequence == 0


def test_a_batch_too_large_is_halved_under_its_numbers_and_later_ones_are_smaller() -> None:
    desk = Desk(linger=0.0)
    desk.send(8)
    (request,) = desk.drain()
    desk.accumulator.refused(request.batches[0], Refused(Code.MESSAGE_TOO_LARGE), 0.0)
    desk.flights.clear()
    (first,) = desk.drain()
    desk.accumulator.stored(first.batches[0], 10, -1)
    (second,) = desk.drain()
    assert desk.sequences([first, second]) == [(0, 4), (4, 4)]
    desk.accumulator.refused(second.batches[0], Refused(Code.MESSAGE_TOO_LARGE), 0.0)
    assert desk.topic.partitions[0].limit < 500


def test_one_record_too_large_fails_and_the_next_is_sent_in_a_new_epoch() -> None:
    desk = Desk(linger=0.0)
    (batch,) = desk.send()
    (request,) = desk.drain()
    desk.accumulator.refused(request.batches[0], Refused(Code.MESSAGE_TOO_LARGE), 0.0)
    assert isinstance(batch.failure, Refused)
    desk.flights.clear()
    desk.send()
    (following,) = desk.drain()
    assert following.batches[0].producer == ProducerIdentity(7, 1)
    assert following.batches[0].base_sequence == 0


def test_one_bad_record_fails_its_batch_and_none_beside_it() -> None:
    desk = Desk(linger=0.0)
    batches = list(dict.fromkeys(desk.send(20)))
    assert len(batches) > 1
    (request,) = desk.drain()
    desk.accumulator.refused(request.batches[0], Refused(Code.INVALID_RECORD), 0.0)
    assert not any(batch.is_settled for batch in batches)


def test_delivery_ends_in_time_with_the_reason_of_the_last_attempt() -> None:
    desk = Desk(linger=0.0, partitions=2)
    (tried,) = desk.send(partition=0)
    (request,) = desk.drain()
    desk.accumulator.lost(request.batches[0], Unreachable("no broker there."), 0.0, was_sent=False)
    (waiting,) = desk.send(partition=1)
    desk.flights[NODE] = 5
    desk.drain(1.0)
    assert desk.accumulator.next_at <= 10.0
    desk.accumulator.expire(10.0)
    assert str(tried.failure) == "no broker there. The record was never sent."
    assert isinstance(tried.failure, Unreachable)
    assert "not delivered in 10 s" in str(waiting.failure)
    assert desk.accumulator.free == 100_000


@pytest.mark.parametrize(
    ("attempts", "may_be_stored", "said"),
    [
        ([], False, "never sent"),
        (["unsent"], False, "never sent"),
        (["recalled", "unsent"], False, "never sent"),
        (["lost"], True, "may have been stored"),
        (["lost", "unsent"], True, "may have been stored"),
        (["lost", "recalled"], True, "may have been stored"),
        (["lost", Code.NOT_ENOUGH_REPLICAS], True, "may have been stored"),
        ([Code.NOT_ENOUGH_REPLICAS], False, "Fewer replicas"),
        ([Code.NOT_ENOUGH_REPLICAS, "unsent"], False, "cut"),
        ([Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND], True, "may have been stored"),
        ([Code.NOT_LEADER_OR_FOLLOWER], True, "may have been stored"),
        (["flying"], True, "may have been stored"),
        (["lost", Code.TOPIC_AUTHORIZATION_FAILED], True, "may have been stored"),
        ([Code.TOPIC_AUTHORIZATION_FAILED], False, "Not allowed"),
    ],
)
def test_a_failure_tells_whether_a_broker_may_have_the_record(
    attempts: list[str | Code], may_be_stored: bool, said: str
) -> None:
    desk = Desk(linger=0.0)
    (batch,) = desk.send()
    for number, attempt in enumerate(attempts):
        (request,) = desk.drain(now := float(number))
        (wire,) = request.batches
        desk.flights.clear()
        if isinstance(attempt, Code):
            desk.accumulator.refused(wire, Refused(attempt), now)
        elif attempt == "recalled":
            desk.accumulator.recalled(wire)
        elif attempt != "flying":
            desk.accumulator.lost(wire, Unreachable("cut"), now, was_sent=attempt == "lost")
    desk.accumulator.expire(10.0)
    assert batch.failure is not None
    assert batch.failure.may_be_stored is may_be_stored
    assert said in str(batch.failure)


def test_the_numbers_of_what_was_never_sent_are_given_to_what_follows() -> None:
    desk = Desk(linger=0.0)
    desk.introduce()
    desk.send(now=0.0)
    (first,) = desk.drain(0.0)
    desk.flights.clear()
    desk.send(now=5.0)
    (second,) = desk.drain(5.0)
    assert desk.sequences([first, second]) == [(1, 1), (2, 1)]
    for request in (first, second):  # both wait for a connection that is being made
        desk.accumulator.recalled(request.batches[0])
    desk.flights.clear()
    desk.accumulator.expire(10.0)
    assert desk.sequences(desk.drain(10.0)) == [(1, 1)]


def test_a_number_that_was_sent_stays_with_its_records() -> None:
    desk = Desk(linger=0.0)
    desk.introduce()
    desk.send(now=0.0)
    (first,) = desk.drain(0.0)
    desk.accumulator.lost(first.batches[0], Unreachable("cut"), 0.0, was_sent=True)
    desk.flights.clear()
    desk.accumulator.expire(10.0)
    desk.send(now=10.0)
    assert desk.sequences(desk.drain(11.0)) == [(2, 1)]


def test_what_is_given_up_in_flight_is_not_settled_again_by_its_answer() -> None:
    desk = Desk(linger=0.0)
    (batch,) = desk.send()
    (request,) = desk.drain()
    desk.accumulator.expire(10.0)
    assert isinstance(batch.failure, Refused)
    desk.accumulator.stored(request.batches[0], 5, -1)
    assert batch.base_offset == -1
    assert desk.accumulator.free == 100_000


def test_retries_are_counted() -> None:
    desk = Desk(linger=0.0, retries=1)
    (batch,) = desk.send()
    for now in (0.0, 1.0):
        (request,) = desk.drain(now)
        desk.accumulator.lost(request.batches[0], Unreachable("cut"), now, was_sent=True)
        desk.flights.clear()
    assert isinstance(batch.failure, Unreachable)


def test_without_a_leader_records_wait_and_fresh_metadata_is_wanted() -> None:
    desk = Desk(linger=0.0)
    desk.send()
    assert desk.accumulator.drain(0.0, lambda partition: None, {}) == []
    assert desk.accumulator.lacks_leader
    assert len(desk.drain()) == 1


def test_a_topic_that_grows_keeps_what_waits() -> None:
    desk = Desk(linger=0.0)
    desk.send()
    desk.accumulator.topic("t", 3)
    assert len(desk.topic.partitions) == 3
    desk.send(partition=2)
    (request,) = desk.drain()
    assert {wire.owner.partition for wire in request.batches} == {
        TopicPartition("t", 0),
        TopicPartition("t", 2),
    }


# In transactions


def test_in_a_transaction_a_gap_fails_its_batch_and_begins_no_epoch() -> None:
    desk = Desk(linger=0.0, max_request_size=1000, is_transactional=True)
    desk.introduce()
    (sent,) = desk.send()
    (request,) = desk.drain()
    desk.accumulator.refused(request.batches[0], Refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    assert isinstance(sent.failure, errors.OutOfOrderSequenceNumber)
    assert desk.accumulator.numbers.producer == ProducerIdentity(7, 0)


def test_the_next_transaction_counts_from_0_where_its_epoch_is_another() -> None:
    desk = Desk(linger=0.0, is_transactional=True)
    desk.introduce()
    desk.send(3)
    desk.accumulator.stored(desk.drain()[0].batches[0], 0, -1)
    desk.flights.clear()
    desk.accumulator.numbers.producer = ProducerIdentity(7, 1)
    desk.send()
    (request,) = desk.drain()
    assert request.batches[0].producer == ProducerIdentity(7, 1)
    assert request.batches[0].base_sequence == 0


def test_what_a_transaction_does_not_admit_yet_waits() -> None:
    desk = Desk(linger=0.0, partitions=2, is_transactional=True)
    admitted: set[TopicPartition] = set()
    desk.accumulator.admits = admitted.__contains__
    desk.send(1, partition=0)
    desk.send(1, partition=1)
    assert desk.drain() == []
    assert not desk.accumulator.lacks_leader
    admitted.add(TopicPartition("t", 1))
    (request,) = desk.drain()
    assert [wire.owner.partition.partition for wire in request.batches] == [1]


def test_what_has_a_number_goes_on_when_the_rest_is_dropped() -> None:
    desk = Desk(linger=0.0, is_transactional=True, max_in_flight=1)
    desk.introduce()
    (numbered,) = desk.send()
    (request,) = desk.drain()
    (waiting,) = desk.send()
    desk.accumulator.drop_waiting(errors.TransactionAborted("aborted"))
    assert isinstance(waiting.failure, errors.TransactionAborted)
    assert not desk.accumulator.is_drained
    desk.accumulator.stored(request.batches[0], 0, -1)
    assert numbered.failure is None
    assert desk.accumulator.is_drained


def test_the_end_of_the_transaction_before_is_not_waited_for_long() -> None:
    desk = Desk(linger=0.0, is_transactional=True)
    desk.introduce()
    desk.send()
    (request,) = desk.drain()
    desk.accumulator.refused(request.batches[0], Refused(Code.CONCURRENT_TRANSACTIONS), 0.0)
    desk.flights.clear()
    assert desk.drain(0.001) == []
    assert desk.drain(0.003)
