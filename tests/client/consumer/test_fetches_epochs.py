"""Promises of client/consumer/fetches.py where leaders change: a cut and rewritten log is noticed (KIP-320)."""

import random
from collections.abc import Iterable
from uuid import UUID

import pytest

from barnabas.client.consumer.fetches import COMMITTED, Fetch, Fetches
from barnabas.client.consumer.offsets import EARLIEST, OffsetAt
from barnabas.client.consumer.reading import Check, EpochEnd, Leader, PendingRead, Position, Reading
from barnabas.errors import Code, LogTruncated, Refused
from barnabas.types import BrokerId, Millis, Offset, TopicPartition
from barnabas.wire.batch import Record, encode_batch, headers
from barnabas.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
)

HERE = TopicPartition("t", 0)
BACKOFF = 0.1


def batch(first: int, end: int, epoch: int) -> bytes:
    rows = [Record(n, 1, None, b"%d" % n) for n in range(first, end)]
    return encode_batch(rows, base_offset=first, leader_epoch=epoch)


def led(epoch: int, node: int = 0) -> Leader:
    return Leader(BrokerId(node), epoch)


def answer(fetch: Fetch, data: bytes = b"", diverging: tuple[int, int] | None = None) -> FetchResponse:
    row = FetchPartitionResponse(0, high_watermark=100, records=memoryview(data))
    row.diverging_epoch = None if diverging is None else EpochEndOffset(*diverging)
    return FetchResponse(responses=[FetchTopicResponse("t", [row])])


def row_of(fetch: Fetch) -> FetchPartition:
    return fetch.request.topics[0].partitions[0]


def fetched(
    spans: Iterable[tuple[int, int, int]], *, reset: int | None = EARLIEST, given: int | None = None
) -> Fetches:
    """A consumer that read batches (first, end, epoch) from 0 on, and was given the records before `given`, or all."""
    fetches = Fetches(reset=reset)
    fetches.add([HERE], EARLIEST)
    fetches.seek(HERE, 0)
    data = b"".join(batch(*span) for span in spans)
    (plan,) = fetches.plan(0.0, lambda _: led(spans_epoch(spans)))
    fetches.take(plan, answer(plan, data), 0.0)
    if given is None:
        chunk = fetches.next_chunk()
        assert chunk is not None
        given = chunk.end
    fetches.reading(HERE).position = given
    return fetches


def spans_epoch(spans: Iterable[tuple[int, int, int]]) -> int:
    return max(epoch for _, _, epoch in spans)


def asked_of(fetches: Fetches, leader: Leader, now: float = 0.0) -> Check:
    """The question that a new leader gets instead of a fetch."""
    assert fetches.plan(now, lambda _: leader) == []
    (check,) = fetches.checks()
    assert fetches.checks() == []
    return check


def test_a_new_leader_is_asked_whether_it_has_what_was_read_before_anything_is_fetched() -> None:
    fetches = fetched([(0, 5, 1), (5, 10, 3)])
    check = asked_of(fetches, led(4))
    assert (check.leader, check.epoch, check.asked.offset) == (led(4), 3, 10)
    assert fetches.plan(0.0, lambda _: led(4)) == [], "the question is under way"
    assert not fetches.checked(check, EpochEnd(3, 10), 0.0)
    (plan,) = fetches.plan(0.0, lambda _: led(4))
    row = row_of(plan)
    assert (row.current_leader_epoch, row.fetch_offset, row.last_fetched_epoch) == (4, 10, 3)
    fetches.take(plan, answer(plan), 0.0)
    (plan,) = fetches.plan(0.0, lambda _: led(4))
    assert row_of(plan).last_fetched_epoch == -1, "a leader that has said it says nothing else in its epoch"
    assert not fetches.truncations


@pytest.mark.parametrize(
    ("known", "leader"), [(3, 3), (-1, 4), (3, -1)], ids=["its own", "unknown here", "unknown there"]
)
def test_nothing_is_asked_where_no_answer_could_help(known: int, leader: int) -> None:
    fetches = Fetches(reset=EARLIEST)
    fetches.add([HERE], COMMITTED)
    fetches.found_committed(fetches.look_up(0.0).committed, {HERE: Position(10, known)})
    (plan,) = fetches.plan(0.0, lambda _: led(leader))
    assert row_of(plan).last_fetched_epoch == -1
    assert fetches.checks() == []


def test_what_was_committed_is_held_against_the_log() -> None:
    fetches = Fetches(reset=EARLIEST)
    fetches.add([HERE], COMMITTED)
    fetches.found_committed(fetches.look_up(0.0).committed, {HERE: Position(10, 3)})
    assert fetches.with_epochs({HERE: 10}) == {HERE: Position(10, 3)}
    check = asked_of(fetches, led(4))
    assert check.epoch == 3
    fetches.checked(check, EpochEnd(3, 6), 0.0)
    assert len(fetches.settle()) == 1
    assert fetches.positions() == {HERE: 6}
    assert fetches.with_epochs({HERE: 6}) == {HERE: Position(6, 3)}


def test_an_offset_by_time_comes_with_its_epoch() -> None:
    fetches = Fetches(reset=EARLIEST)
    fetches.add([HERE], None)
    (row,) = fetches.look_up(0.0).by_time
    fetches.found_by_time([row[0]], {HERE: OffsetAt(Offset(7), Millis(1), 2)}, 0.0)
    assert asked_of(fetches, led(5)).epoch == 2


@pytest.mark.parametrize(
    ("found", "divergent"),
    [
        (EpochEnd(3, 10), None),
        (EpochEnd(3, 99), None),
        (EpochEnd(3, 7), 7),
        (EpochEnd(1, 5), 5),
        (EpochEnd(1, 3), 3),
        (EpochEnd(1, 20), 5),
        (EpochEnd(2, 20), 5),
        (EpochEnd(0, 20), 0),
    ],
    ids=[
        "all of it",
        "more",
        "less of the last epoch",
        "no batch of it",
        "less of the one before",
        "other records where our epoch begins",
        "an epoch we have nothing of",
        "nothing in common",
    ],
)
def test_where_logs_part(found: EpochEnd, divergent: int | None) -> None:
    spans = [(0, 5, 1), (5, 10, 3)]
    fetches = fetched(spans)
    fetches.checked(asked_of(fetches, led(4)), found, 0.0)
    told = fetches.settle()
    if divergent is None:
        assert told == []
        assert fetches.positions() == {HERE: 10}
        return
    assert fetches.positions() == {HERE: divergent}
    assert len(told) == 1
    assert f"offsets {divergent} to 9" in told[0]

    strict = fetched(spans, reset=None)
    strict.checked(asked_of(strict, led(4)), found, 0.0)
    assert strict.settle() == []
    (why,) = strict.failures
    assert isinstance(why, LogTruncated)
    assert (why.partition, why.offset, why.divergent) == (HERE, 10, divergent)
    assert strict.plan(1000.0, lambda _: led(4)) == [], "only the user knows where to go on"
    assert strict.positions() == {}, "nothing to commit"


def test_a_seek_answers_the_failure() -> None:
    fetches = fetched([(0, 10, 1)], reset=None)
    fetches.checked(asked_of(fetches, led(2)), EpochEnd(1, 4), 0.0)
    fetches.settle()
    fetches.seek(HERE, 4)
    assert not fetches.failures
    (plan,) = fetches.plan(0.0, lambda _: led(2))
    assert row_of(plan).fetch_offset == 4


def test_records_that_were_not_given_yet_are_fetched_anew_without_a_word() -> None:
    fetches = fetched([(0, 10, 1)], reset=None, given=4)
    fetches.checked(asked_of(fetches, led(2)), EpochEnd(1, 6), 0.0)
    assert fetches.settle() == []
    assert not fetches.failures
    assert fetches.next_chunk() is None, "what was fetched is not what the log has"
    check = asked_of(fetches, led(2))
    assert (check.asked.offset, check.epoch) == (4, 1)
    fetches.checked(check, EpochEnd(1, 6), 0.0)
    (plan,) = fetches.plan(0.0, lambda _: led(2))
    assert row_of(plan).fetch_offset == 4


def test_a_fetch_that_hears_of_a_divergence_goes_back_too() -> None:
    fetches = fetched([(0, 10, 1)])
    fetches.checked(asked_of(fetches, led(2)), EpochEnd(1, 10), 0.0)
    (plan,) = fetches.plan(0.0, lambda _: led(2))
    fetches.take(plan, answer(plan, diverging=(1, 6)), 0.0)
    assert fetches.plan(0.0, lambda _: led(2)) == [], "nothing is fetched until that is settled"
    assert len(fetches.settle()) == 1
    assert fetches.positions() == {HERE: 6}


def test_an_epoch_without_records_is_no_divergence() -> None:
    """A leader that was asked for an offset tells its own epoch, which may have ended without a batch."""
    fetches = Fetches(reset=EARLIEST)
    fetches.add([HERE], COMMITTED)
    fetches.found_committed(fetches.look_up(0.0).committed, {HERE: Position(10, 5)})
    fetches.checked(asked_of(fetches, led(6)), EpochEnd(4, 10), 0.0)
    (plan,) = fetches.plan(0.0, lambda _: led(6))
    assert row_of(plan).last_fetched_epoch == -1
    fetches.take(plan, answer(plan, diverging=(4, 10)), 0.0)
    assert not fetches.truncations
    assert fetches.plan(0.0, lambda _: led(6))


@pytest.mark.parametrize("code", [Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH])
def test_a_leader_of_another_epoch_refreshes_the_metadata_and_is_asked_again(code: Code) -> None:
    fetches = fetched([(0, 10, 1)])
    assert fetches.checked(asked_of(fetches, led(2)), Refused(code), 0.0)
    assert fetches.plan(0.0, lambda _: led(2)) == []
    assert fetches.checks() == []
    assert asked_of(fetches, led(3), BACKOFF).leader == led(3)


def test_a_broker_that_cannot_tell_is_trusted() -> None:
    fetches = fetched([(0, 10, 1)])
    fetches.checked(asked_of(fetches, led(2)), Refused(Code.UNSUPPORTED_VERSION), 0.0)
    assert fetches.plan(0.0, lambda _: led(2))


def test_what_is_not_allowed_is_told() -> None:
    fetches = fetched([(0, 10, 1)])
    fetches.checked(asked_of(fetches, led(2)), Refused(Code.TOPIC_AUTHORIZATION_FAILED), 0.0)
    assert [why.code for why in fetches.failures] == [Code.TOPIC_AUTHORIZATION_FAILED]


def test_a_leader_older_than_what_was_read_is_believed_only_after_several_looks() -> None:
    """It may be one that was replaced; or the topic was made anew, and its epochs begin anew."""
    fetches = fetched([(0, 10, 5)])
    now = 0.0
    for _ in range(3):
        assert fetches.checked(asked_of(fetches, led(2), now), EpochEnd(-1, -1), now), "look for the leader"
        now += BACKOFF
    assert not fetches.checked(asked_of(fetches, led(2), now), EpochEnd(-1, -1), now)
    (told,) = fetches.settle()
    assert "t-0" in told
    assert fetches.positions() == {}
    assert [want for _, want in fetches.look_up(now).by_time] == [EARLIEST]


def test_what_was_found_before_a_seek_means_nothing_after_it() -> None:
    fetches = fetched([(0, 10, 1)])
    check = asked_of(fetches, led(2))
    fetches.seek(HERE, 8)
    fetches.checked(check, EpochEnd(1, 3), 0.0)
    assert not fetches.truncations
    (plan,) = fetches.plan(0.0, lambda _: led(2))
    fetches.take(plan, answer(plan, batch(8, 12, 2)), 0.0)

    fetches = fetched([(0, 10, 1)])
    fetches.checked(asked_of(fetches, led(2)), EpochEnd(1, 3), 0.0)
    fetches.seek(HERE, 8)
    assert fetches.settle() == []
    assert fetches.positions() == {HERE: 8}


def test_a_topic_that_was_made_anew_is_another_log() -> None:
    """Its epochs begin anew, and may be the same: the id tells."""
    fetches = fetched([(0, 10, 0)])
    again = led(0)._replace(topic_id=UUID(int=7))
    fetches.reading(HERE).leader = led(0)._replace(topic_id=UUID(int=6))
    assert fetches.plan(0.0, lambda _: again) == []
    assert fetches.checks() == [], "there is nothing to ask"
    (told,) = fetches.settle()
    assert "offsets 0 to 9" in told
    (plan,) = fetches.plan(0.0, lambda _: again)
    assert row_of(plan).fetch_offset == 0


def test_commits_carry_the_epoch_of_the_record_before() -> None:
    fetches = fetched([(0, 5, 1), (5, 10, 3), (10, 15, 3)])
    other = TopicPartition("t", 1)
    wanted = {0: -1, 1: 1, 5: 1, 6: 3, 12: 3, 15: 3, 16: -1}
    found = {offset: fetches.with_epochs({HERE: offset})[HERE].epoch for offset in wanted}
    assert found == wanted
    assert fetches.with_epochs({other: 3}) == {other: Position(3)}


def test_what_is_fetched_again_keeps_its_epochs() -> None:
    fetches = fetched([(0, 5, 1), (5, 10, 3)])
    fetches.fetch_again(fetches.reading(HERE), 7)
    assert fetches.with_epochs({HERE: 7}) == {HERE: Position(7, 3)}
    assert fetches.with_epochs({HERE: 8}) == {HERE: Position(8)}, "not read any more"


class Log:
    """A partition as its leader has it: the epoch of each record. Replicas may differ, and any may become leader."""

    def __init__(self) -> None:
        self.epoch = 0
        self.records: list[int] = []
        self.other: list[int] = []

    def append(self, count: int) -> None:
        self.records += [self.epoch] * count

    def lose_tail(self, end: int) -> None:
        del self.records[end:]
        self.epoch += 1

    def elect_other(self) -> None:
        self.records, self.other = self.other, self.records
        self.epoch += 1

    def end_of(self, epoch: int) -> EpochEnd:
        if epoch > self.epoch:
            return EpochEnd(-1, -1)
        if epoch == self.epoch:
            return EpochEnd(epoch, len(self.records))
        end = next((at for at, each in enumerate(self.records) if each > epoch), len(self.records))
        return EpochEnd(self.records[end - 1] if end else epoch, end)

    def fetch(self, row: FetchPartition, chance: random.Random) -> FetchPartitionResponse:
        found = FetchPartitionResponse(0, high_watermark=len(self.records), records=memoryview(b""))
        at = row.fetch_offset
        if row.current_leader_epoch != self.epoch:
            found.error_code = Code.FENCED_LEADER_EPOCH
        elif (
            row.last_fetched_epoch >= 0
            and (end := self.end_of(row.last_fetched_epoch))
            and (end.epoch < row.last_fetched_epoch or end.end < at)
        ):
            found.diverging_epoch = EpochEndOffset(*end)
        elif at > len(self.records):
            found.error_code = Code.OFFSET_OUT_OF_RANGE
        else:
            found.records = memoryview(b"".join(self._batches(at, at + chance.randrange(12))))
        return found

    def _batches(self, at: int, end: int) -> Iterable[bytes]:
        stop = min(end, len(self.records))
        while at < stop:
            last = at
            while last < stop and self.records[last] == self.records[at] and last < at + 4:
                last += 1
            yield batch(at, last, self.records[at])
            at = last


class Run:
    """A consumer that reads a log which loses tails and changes leaders, over a network that loses answers."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log = Log()
        self.known = 0
        """The leader epoch that the consumer's metadata has."""
        self.now = 0.0
        self.view: list[int] = []
        """The epochs of the records that the user was given and has not been told to forget."""
        self.words = 0
        self.fetches = Fetches(reset=EARLIEST)
        self.fetches.add([HERE], EARLIEST)
        self.fetches.seek(HERE, 0)
        self.plans: list[Fetch] = []
        self.checks: list[Check] = []
        self.lookups: list[tuple[PendingRead, int]] = []

    def step(self) -> None:
        self.now += self.chance.choice((0.0, 0.01, 0.2))
        match self.chance.randrange(12):
            case 0:
                self.log.append(self.chance.randrange(1, 8))
            case 1 if self.chance.random() < 0.3:
                self.log.lose_tail(self.chance.randrange(len(self.log.records) + 1))
            case 2 if self.chance.random() < 0.3:
                self.log.other = self.log.records[: self.chance.randrange(len(self.log.records) + 1)]
                # It led for an epoch that no other replica has seen.
                self.log.other += [self.log.epoch + 1] * self.chance.randrange(6)
                self.log.epoch += 2
            case 3 if self.chance.random() < 0.3:
                self.log.elect_other()
            case 4:
                self.known = self.log.epoch
            case 5 | 6 | 7:
                self.go_on(lossy=True)
            case _:
                self.poll()

    def go_on(self, *, lossy: bool) -> None:
        """What the network's thread does."""
        self.plans += self.fetches.plan(self.now, lambda _: led(self.known))
        self.checks += self.fetches.checks()
        self.lookups += self.fetches.look_up(self.now).by_time
        is_lost = lossy and self.chance.random() < 0.2
        if self.plans:
            plan = self.plans.pop(self.chance.randrange(len(self.plans)))
            row = self.log.fetch(row_of(plan), self.chance)
            told = FetchResponse(responses=[FetchTopicResponse("t", [row])])
            lost = Refused(Code.NETWORK_EXCEPTION)
            if self.fetches.take(plan, lost if is_lost else told, self.now):
                self.known = self.log.epoch
        if self.checks:
            check = self.checks.pop()
            found: EpochEnd | Refused = self.log.end_of(check.epoch)
            if is_lost:
                found = Refused(Code.NETWORK_EXCEPTION)
            elif check.leader.epoch != self.log.epoch:
                found = Refused(Code.FENCED_LEADER_EPOCH)
            if self.fetches.checked(check, found, self.now):
                self.known = self.log.epoch
        if self.lookups:
            asked, _ = self.lookups.pop()
            self.fetches.found_by_time([asked], {HERE: OffsetAt(Offset(0), Millis(1), -1)}, self.now)

    def poll(self) -> None:
        """What the user's thread does."""
        words = self.fetches.settle()
        position = self.fetches.positions().get(HERE, 0)
        if words:
            self.words += 1
            assert position < len(self.view)
            del self.view[position:]
        reading: Reading = self.fetches.reading(HERE)
        if reading.want is None:
            assert position == len(self.view), "nothing is skipped or read again without a word"
        chunk = self.fetches.next_chunk()
        if chunk is not None:
            assert chunk.start == len(self.view)
            for _, header in headers(chunk.data):
                for offset in range(header.base_offset, header.next_offset):
                    if offset >= chunk.start:
                        self.view.append(header.leader_epoch)
            reading.position = chunk.end


def test_whatever_becomes_of_logs_the_user_ends_with_what_the_leader_has() -> None:
    words = 0
    for seed in range(400):
        run = Run(seed)
        for _ in range(300):
            run.step()
        run.known = run.log.epoch
        run.log.append(1)
        for _ in range(300):
            run.now += BACKOFF
            run.go_on(lossy=False)
            run.poll()
        assert run.view == run.log.records, seed
        words += run.words
    assert words > 400, "the simulation cuts what was read"
