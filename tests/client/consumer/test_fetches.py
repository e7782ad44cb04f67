"""Promises of client/consumer/fetches.py: what is asked for, and in which order it is given, without a broker."""

import random
from collections.abc import Sequence

import pytest

from barnabas.client.consumer.fetches import COMMITTED, Fetch, Fetches
from barnabas.client.consumer.offsets import EARLIEST, LATEST, OffsetAt
from barnabas.client.consumer.reading import Chunk, Leader, Position
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import BrokerId, Millis, Offset, TopicPartition
from barnabas.wire.batch import Record, encode_batch
from barnabas.wire.messages.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse

ZERO, ONE, TWO = (TopicPartition("t", number) for number in range(3))
BACKOFF = 0.1


def leader_of(partition: TopicPartition) -> Leader | None:
    """The first broker leads the even partitions, the second one the odd."""
    return Leader(BrokerId(partition.partition % 2), 7)


def reading(*partitions: TopicPartition, at: int = 0, **limits: int) -> Fetches:
    fetches = Fetches(reset=EARLIEST, **limits)  # type: ignore[arg-type]
    fetches.add(partitions, None)
    for partition in partitions:
        fetches.seek(partition, at)
    return fetches


def batch(first: int, count: int = 10) -> bytes:
    return encode_batch(
        [Record(n, 1, None, b"%d" % n) for n in range(first, first + count)], base_offset=first
    )


def answer(partition: TopicPartition, data: bytes = b"", code: Code = Code.NONE) -> FetchResponse:
    row = FetchPartitionResponse(partition.partition, code, high_watermark=100, records=memoryview(data))
    return FetchResponse(responses=[FetchTopicResponse(partition.topic, [row])])


def asked(plans: Sequence[Fetch]) -> dict[TopicPartition, int]:
    """What is asked for, and from where."""
    return {
        TopicPartition(topic.topic, row.partition): row.fetch_offset
        for plan in plans
        for topic in plan.request.topics
        for row in topic.partitions
    }


def give(fetches: Fetches) -> tuple[TopicPartition, int, int] | None:
    """The next chunk as the user sees it; its position moves on."""
    chunk = fetches.next_chunk()
    if chunk is None:
        return None
    chunk.reading.position = chunk.end
    return chunk.reading.partition, chunk.start, chunk.end


def test_each_leader_gets_one_request_for_all_that_is_its() -> None:
    fetches = reading(ZERO, ONE, TWO, at=5)
    plans = fetches.plan(0.0, leader_of)
    assert [(plan.node, sorted(plan.asked)) for plan in plans] == [(0, [ZERO, TWO]), (1, [ONE])]
    assert asked(plans) == {ZERO: 5, ONE: 5, TWO: 5}
    row = plans[0].request.topics[0].partitions[0]
    assert row.current_leader_epoch == 7
    assert fetches.plan(0.0, leader_of) == [], "all of it is under way"


def test_what_was_fetched_is_given_and_the_next_is_asked_for_behind_it() -> None:
    fetches = reading(ZERO)
    (plan,) = fetches.plan(0.0, leader_of)
    assert not fetches.take(plan, answer(ZERO, batch(0) + batch(10) + batch(20)[:-1]), 0.0)
    assert asked(fetches.plan(0.0, leader_of)) == {ZERO: 20}, "a batch that is cut off is asked for again"
    assert fetches.positions() == {ZERO: 0}, "the user has nothing yet"
    assert give(fetches) == (ZERO, 0, 20)
    assert fetches.positions() == {ZERO: 20}


def test_what_waits_for_the_user_bounds_what_is_asked_for() -> None:
    size = len(batch(0))
    fetches = reading(ZERO, TWO, max_partition_bytes=size, max_bytes=2 * size)
    (plan,) = fetches.plan(0.0, leader_of)
    assert plan.request.max_bytes == 2 * size
    fetches.take(plan, answer(ZERO, batch(0)), 0.0)
    again = fetches.plan(BACKOFF, leader_of)
    assert asked(again) == {TWO: 0}, "enough of the other is here"
    assert again[0].request.max_bytes == size
    fetches.take(again[0], answer(TWO, batch(0)), 0.0)
    assert fetches.plan(0.0, leader_of) == [], "enough is here in all"
    assert give(fetches) == (ZERO, 0, 10)
    assert asked(fetches.plan(0.0, leader_of)) == {ZERO: 10}, (
        "while the user deals with it the next one comes"
    )


def test_a_partition_that_becomes_free_does_not_wait_for_a_fetch_that_waits_for_others() -> None:
    fetches = reading(ZERO, TWO)
    fetches.pause([TWO])
    (first,) = fetches.plan(0.0, leader_of)
    fetches.resume([TWO])
    (second,) = fetches.plan(0.0, leader_of)
    assert (sorted(first.asked), sorted(second.asked)) == ([ZERO], [TWO])
    assert first.lane != second.lane
    assert first.node == second.node


def test_what_is_there_does_not_wait_for_fetches_that_wait_for_what_is_not() -> None:
    more = [TopicPartition("t", number) for number in (4, 6)]
    fetches = reading(ZERO, TWO, *more)
    fetches.pause([TWO, *more])
    waiting = []
    for partition in (ZERO, TWO):
        fetches.resume([partition])
        (plan,) = fetches.plan(0.0, leader_of)
        waiting.append(plan)
    fetches.resume(more)
    (third,) = fetches.plan(0.0, leader_of)
    assert sorted(third.asked) == more
    assert len({plan.lane for plan in (*waiting, third)}) == 3
    assert [plan.request.max_wait_ms for plan in (*waiting, third)] == [500, 500, 0]

    # One of them has more behind what it gave, the other nothing: only the first is asked for again.
    rows = [
        FetchPartitionResponse(4, high_watermark=20, records=memoryview(batch(0))),
        FetchPartitionResponse(6, high_watermark=10, records=memoryview(batch(0))),
    ]
    fetches.take(third, FetchResponse(responses=[FetchTopicResponse("t", rows)]), 0.0)
    (fourth,) = fetches.plan(0.0, leader_of)
    assert asked([fourth]) == {more[0]: 10}
    fetches.take(waiting[0], answer(ZERO), 0.0)
    assert asked(fetches.plan(0.0, leader_of)) == {ZERO: 0, more[1]: 10}, "now another fetch can wait for it"


def test_what_is_said_to_be_there_and_is_not_is_not_asked_for_again_and_again() -> None:
    more = TopicPartition("t", 4)
    fetches = reading(ZERO, TWO, more)
    fetches.pause([TWO, more])
    for partition in (TWO, more):
        fetches.plan(0.0, leader_of)
        fetches.resume([partition])
    (third,) = fetches.plan(0.0, leader_of)
    fetches.take(third, answer(more), 0.0)  # a high watermark of 100, and no records
    assert fetches.plan(0.0, leader_of) == []
    assert asked(fetches.plan(BACKOFF, leader_of)) == {more: 0}


def test_partitions_take_turns() -> None:
    fetches = reading(ZERO, TWO, max_partition_bytes=1 << 20)
    for start in (0, 10):
        for plan in fetches.plan(BACKOFF, leader_of):
            rows = [
                FetchPartitionResponse(each.partition, records=memoryview(batch(start)))
                for each in plan.asked
            ]
            fetches.take(plan, FetchResponse(responses=[FetchTopicResponse("t", rows)]), 0.0)
    given = [give(fetches) for _ in range(4)]
    assert [each and each[0] for each in given] == [ZERO, TWO, ZERO, TWO]
    (plan,) = fetches.plan(0.0, leader_of)
    fetches.take(plan, answer(ZERO, batch(20)), 0.0)
    (plan,) = fetches.plan(BACKOFF, leader_of)
    assert list(plan.asked) == [TWO, ZERO], "a partition that got nothing comes first"


def test_a_seek_drops_what_was_fetched_and_what_is_under_way() -> None:
    fetches = reading(ZERO)
    (plan,) = fetches.plan(0.0, leader_of)
    fetches.take(plan, answer(ZERO, batch(0)), 0.0)
    (old,) = fetches.plan(0.0, leader_of)
    fetches.seek(ZERO, 50)
    assert give(fetches) is None
    (new,) = fetches.plan(0.0, leader_of)
    assert asked([new]) == {ZERO: 50}
    fetches.take(old, answer(ZERO, batch(10)), 0.0)
    assert give(fetches) is None
    fetches.take(new, answer(ZERO, batch(50)), 0.0)
    assert give(fetches) == (ZERO, 50, 60)


def test_a_batch_that_begins_before_the_position_is_given_from_there_on() -> None:
    fetches = reading(ZERO, at=3)
    (plan,) = fetches.plan(0.0, leader_of)
    fetches.take(plan, answer(ZERO, batch(0)), 0.0)
    assert give(fetches) == (ZERO, 3, 10)


def test_what_is_paused_waits_and_is_not_asked_for() -> None:
    fetches = reading(ZERO, ONE)
    for plan in fetches.plan(0.0, leader_of):
        for partition in plan.asked:
            fetches.take(plan, answer(partition, batch(0)), 0.0)
    fetches.pause([ZERO])
    assert fetches.paused == {ZERO}
    assert give(fetches) == (ONE, 0, 10)
    assert not fetches.has_chunk()
    assert asked(fetches.plan(0.0, leader_of)) == {ONE: 10}
    fetches.resume([ZERO])
    assert give(fetches) == (ZERO, 0, 10)


def test_what_is_put_back_comes_first_again() -> None:
    fetches = reading(ZERO)
    (plan,) = fetches.plan(0.0, leader_of)
    fetches.take(plan, answer(ZERO, batch(0)), 0.0)
    chunk = fetches.next_chunk()
    assert isinstance(chunk, Chunk)
    fetches.put_back(chunk._replace(start=4))
    assert give(fetches) == (ZERO, 4, 10)


# --- positions


def test_a_partition_begins_where_its_group_has_got_to_or_where_the_reset_says() -> None:
    fetches = Fetches(reset=LATEST)
    fetches.add([ZERO, ONE], COMMITTED)
    lookup = fetches.look_up(0.0)
    assert [each.reading.partition for each in lookup.committed] == [ZERO, ONE]
    assert fetches.look_up(0.0) == ([], []), "it is asked for once"
    fetches.found_committed(lookup.committed, {ZERO: Position(42)})
    assert fetches.positions() == {ZERO: 42}
    (row,) = fetches.look_up(0.0).by_time
    assert (row[0].reading.partition, row[1]) == (ONE, LATEST)
    found = OffsetAt(Offset(99), Millis(-1), 0)
    fetches.found_by_time([row[0]], {ONE: found}, 0.0)
    assert fetches.positions() == {ZERO: 42, ONE: 99}


def test_without_a_record_so_late_the_end_is_sought() -> None:
    fetches = reading(ZERO)
    fetches.seek_to(ZERO, 1234)
    ((first, when),) = fetches.look_up(0.0).by_time
    assert when == 1234
    fetches.found_by_time([first], {ZERO: OffsetAt(Offset(-1), Millis(-1), 0)}, 0.0)
    ((_, when),) = fetches.look_up(0.0).by_time
    assert when == LATEST


def test_a_seek_settles_what_was_being_looked_up() -> None:
    fetches = Fetches(reset=EARLIEST)
    fetches.add([ZERO], COMMITTED)
    lookup = fetches.look_up(0.0)
    fetches.seek(ZERO, 7)
    fetches.found_committed(lookup.committed, {ZERO: Position(42)})
    assert fetches.positions() == {ZERO: 7}


def test_an_offset_that_is_gone_is_reset_once_all_before_it_is_given() -> None:
    fetches = reading(ZERO)
    (plan,) = fetches.plan(0.0, leader_of)
    fetches.take(plan, answer(ZERO, batch(0)), 0.0)
    (plan,) = fetches.plan(0.0, leader_of)
    fetches.take(plan, answer(ZERO, code=Code.OFFSET_OUT_OF_RANGE), 0.0)
    assert give(fetches) == (ZERO, 0, 10)
    (plan,) = fetches.plan(BACKOFF, leader_of)
    fetches.take(plan, answer(ZERO, code=Code.OFFSET_OUT_OF_RANGE), BACKOFF)
    ((_, when),) = fetches.look_up(BACKOFF).by_time
    assert when == EARLIEST
    assert not fetches.failures


def test_without_a_reset_the_user_has_to_say_where() -> None:
    fetches = Fetches(reset=None)
    fetches.add([ZERO], COMMITTED)
    fetches.found_committed(fetches.look_up(0.0).committed, {})
    assert fetches.failures[0].code is Code.OFFSET_OUT_OF_RANGE
    assert "t-0" in fetches.failures[0].message
    assert fetches.look_up(1.0) == ([], [])
    fetches.seek(ZERO, 1)
    assert asked(fetches.plan(1.0, leader_of)) == {ZERO: 1}


# --- trouble


def test_a_leader_that_is_none_is_asked_again_after_a_while() -> None:
    fetches = reading(ZERO)
    (plan,) = fetches.plan(0.0, leader_of)
    assert fetches.take(plan, answer(ZERO, code=Code.NOT_LEADER_OR_FOLLOWER), 0.0), "metadata is stale"
    assert fetches.plan(0.0, leader_of) == []
    assert fetches.retry_at(0.0) == BACKOFF
    elsewhere = fetches.plan(BACKOFF, lambda partition: Leader(BrokerId(5), 8))
    assert [plan.node for plan in elsewhere] == [5]


def test_a_lost_fetch_is_sent_again() -> None:
    fetches = reading(ZERO, ONE)
    for plan in fetches.plan(0.0, leader_of):
        assert fetches.take(plan, Refused(Code.NETWORK_EXCEPTION), 0.0)
    assert asked(fetches.plan(BACKOFF, leader_of)) == {ZERO: 0, ONE: 0}
    assert not fetches.failures


def test_a_partition_without_a_leader_waits() -> None:
    assert reading(ZERO).plan(0.0, lambda partition: None) == []


def test_what_no_other_try_can_help_is_told_until_a_seek_answers_it() -> None:
    fetches = reading(ZERO)
    (plan,) = fetches.plan(0.0, leader_of)
    fetches.take(plan, answer(ZERO, code=Code.TOPIC_AUTHORIZATION_FAILED), 0.0)
    assert [each.code for each in fetches.failures] == [Code.TOPIC_AUTHORIZATION_FAILED]
    assert fetches.plan(1000.0, leader_of) == []
    assert fetches.standing_failure is fetches.failures.popleft()
    fetches.seek(ZERO, 0)
    assert fetches.standing_failure is None


@pytest.mark.parametrize("claimed", [0, 5, -1, 0x7FFFFFFF])
def test_a_batch_of_an_impossible_size_is_told_behind_what_is_whole(claimed: int) -> None:
    fetches = reading(ZERO)
    (plan,) = fetches.plan(0.0, leader_of)
    damaged = bytearray(batch(10))
    damaged[8:12] = claimed.to_bytes(4, "big", signed=True)
    fetches.take(plan, answer(ZERO, batch(0) + damaged), 0.0)
    assert give(fetches) == (ZERO, 0, 10)
    assert fetches.standing_failure is None, "it was not come to yet"
    (plan,) = fetches.plan(0.0, leader_of)
    assert asked([plan]) == {ZERO: 10}
    fetches.take(plan, answer(ZERO, bytes(damaged)), 0.0)
    (why,) = fetches.failures
    assert why.code is Code.CORRUPT_MESSAGE
    assert "t-0" in why.message
    assert "offset 10" in why.message
    (plan,) = fetches.plan(BACKOFF, leader_of)
    fetches.take(plan, answer(ZERO, bytes(damaged)), BACKOFF)
    assert len(fetches.failures) == 1, "one at a time"
    (plan,) = fetches.plan(2 * BACKOFF, leader_of)
    fetches.take(plan, answer(ZERO, batch(10)), 2 * BACKOFF)
    assert not fetches.failures, "it was mended meanwhile"
    assert fetches.standing_failure is None
    assert give(fetches) == (ZERO, 10, 20)


def test_only_what_is_assigned_can_be_sought_or_paused() -> None:
    fetches = reading(ZERO)
    for wrong in (lambda: fetches.seek(ONE, 1), lambda: fetches.pause([ONE])):
        with pytest.raises(BarnabasError, match="t-1 is not assigned"):
            wrong()


def test_whatever_happens_records_come_in_order_and_each_once() -> None:
    """A log of 500 offsets, a network that loses answers, a user that seeks, pauses and takes its time."""
    for seed in range(150):
        chance = random.Random(seed)
        fetches = reading(ZERO, ONE, TWO, max_partition_bytes=800, max_bytes=2000)
        under_way: list[Fetch] = []
        due = dict.fromkeys((ZERO, ONE, TWO), 0)
        now = 0.0
        for _ in range(200):
            now += chance.choice((0.0, 0.01, 0.2))
            under_way += fetches.plan(now, leader_of)
            match chance.randrange(8):
                case 0 | 1 | 2 if under_way:
                    plan = under_way.pop(chance.randrange(len(under_way)))
                    if chance.random() < 0.2:
                        fetches.take(plan, Refused(Code.NETWORK_EXCEPTION), now)
                        continue
                    rows = []
                    for partition, wanted in plan.asked.items():
                        first = wanted.offset - wanted.offset % 10
                        data = b"".join(batch(first + 10 * n) for n in range(chance.randrange(4)))
                        rows.append(FetchPartitionResponse(partition.partition, records=memoryview(data)))
                    fetches.take(plan, FetchResponse(responses=[FetchTopicResponse("t", rows)]), now)
                case 3 | 4 | 5:
                    given = give(fetches)
                    if given is not None:
                        partition, start, end = given
                        assert partition not in fetches.paused
                        assert start == due[partition]
                        due[partition] = end
                case 6:
                    partition = chance.choice((ZERO, ONE, TWO))
                    due[partition] = chance.randrange(100)
                    fetches.seek(partition, due[partition])
                case 7:
                    partition = chance.choice((ZERO, ONE, TWO))
                    chance.choice((fetches.pause, fetches.resume))([partition])
            assert 0 <= fetches._buffered <= 2000 + 3 * 4 * len(batch(0))
        assert fetches._buffered == sum(each.buffered for each in fetches._readings.values())
