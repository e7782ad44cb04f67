"""One partition as its leader sees its replicas: the watermark, the in-sync set, and the wishes for another one."""

import pytest

from barnabas.cluster.image import PartitionImage
from barnabas.errors import Code, NotLeaderOrFollower, Refused
from barnabas.replication.leadership import QUIET_MS, SILENT_MS, IsrWish, Leadership
from barnabas.types import BrokerEpoch, BrokerId, LeaderEpoch, Millis, Offset, PartitionEpoch

LAG = 1000
NOW = 1_000_000


class Partition:
    """A leadership of broker 1 with replicas 1, 2, 3 (epochs 11, 12, 13), in leader epoch 5 and partition epoch 7."""

    def __init__(
        self, isr: tuple[int, ...] = (1, 2, 3), *, start: int = 10, watermark: int = 10, min_insync: int = 2
    ) -> None:
        self.live = {BrokerId(n): BrokerEpoch(10 + n) for n in (1, 2, 3)}
        self.now = NOW
        self.machine = Leadership(
            BrokerId(1),
            self.state(isr, 7),
            epoch_start=Offset(start),
            high_watermark=Offset(watermark),
            live=self.live,
            min_insync=min_insync,
            lag_ms=LAG,
            now=Millis(NOW),
        )
        self.machine.appended(Offset(start))

    @staticmethod
    def state(
        isr: tuple[int, ...], partition_epoch: int, replicas: tuple[int, ...] = (1, 2, 3)
    ) -> PartitionImage:
        return PartitionImage(
            tuple(map(BrokerId, replicas)),
            tuple(map(BrokerId, isr)),
            BrokerId(1),
            LeaderEpoch(5),
            PartitionEpoch(partition_epoch),
        )

    @property
    def watermark(self) -> int:
        return self.machine.high_watermark

    def append(self, end: int) -> None:
        self.machine.appended(Offset(end))

    def fetch(
        self, replica: int, offset: int, *, epoch: int = 5, life: int | None = None, start: int = 0
    ) -> None:
        life = 10 + replica if life is None else life
        self.machine.fetched(
            BrokerId(replica),
            BrokerEpoch(life),
            LeaderEpoch(epoch),
            Offset(offset),
            Offset(start),
            Millis(self.now),
        )

    def tick(self, later: int) -> None:
        self.now += later
        self.machine.tick(Millis(self.now))

    def wish(self) -> list[int] | None:
        """The members of the wish that is to be sent."""
        return [broker for broker, _ in self.machine.wish.isr] if self.machine.wish else None

    def sent(self) -> IsrWish:
        wish = self.machine.take_wish()
        assert wish is not None
        return wish

    def grant(self, wish: IsrWish, partition_epoch: int = 8) -> None:
        isr = tuple(broker for broker, _ in wish.isr)
        self.machine.answered(wish, Code.NONE, Millis(self.now), isr, PartitionEpoch(partition_epoch))

    def refuse(self, wish: IsrWish, code: Code) -> None:
        self.machine.answered(wish, code, Millis(self.now))


def test_the_watermark_is_the_smallest_end_of_the_replicas_in_sync() -> None:
    leading = Partition()
    leading.append(20)
    assert leading.watermark == 10
    leading.fetch(2, 18)
    assert leading.watermark == 10
    leading.fetch(3, 15)
    assert leading.watermark == 15
    leading.fetch(3, 20)
    assert leading.watermark == 18
    leading.fetch(2, 20)
    assert leading.watermark == 20


def test_the_leader_itself_counts_with_what_it_has_flushed() -> None:
    leading = Partition()
    leading.fetch(2, 20)
    leading.fetch(3, 20)
    assert leading.watermark == 10
    leading.append(17)
    assert leading.watermark == 17


def test_the_watermark_never_falls() -> None:
    leading = Partition()
    leading.append(20)
    leading.fetch(2, 20)
    leading.fetch(3, 20)
    leading.fetch(3, 12)
    assert leading.watermark == 20


def test_a_new_leader_begins_with_the_watermark_that_it_had() -> None:
    leading = Partition(start=30, watermark=10)
    assert leading.watermark == 10
    leading.fetch(2, 30)
    leading.fetch(3, 25)
    assert leading.watermark == 25


@pytest.mark.parametrize(("epoch", "code"), [(4, Code.FENCED_LEADER_EPOCH), (6, Code.UNKNOWN_LEADER_EPOCH)])
def test_only_fetches_of_the_leaders_own_epoch_count(epoch: int, code: Code) -> None:
    leading = Partition()
    leading.append(20)
    leading.fetch(2, 20)
    with pytest.raises(Refused) as refused:
        leading.fetch(3, 20, epoch=epoch)
    assert refused.value.code is code
    assert leading.watermark == 10


def test_a_fetch_of_an_earlier_life_or_of_another_broker_does_not_count() -> None:
    leading = Partition()
    leading.append(20)
    leading.fetch(2, 20)
    leading.fetch(3, 12, life=23)
    with pytest.raises(NotLeaderOrFollower):
        leading.fetch(3, 20, life=13)
    with pytest.raises(NotLeaderOrFollower):
        leading.fetch(4, 20)
    assert leading.watermark == 12


def test_the_watermark_stands_still_while_too_few_are_in_sync() -> None:
    leading = Partition(isr=(1,))
    leading.append(20)
    assert leading.watermark == 10
    assert not leading.machine.is_enough_for_all
    assert leading.machine.outcome(Offset(10)) is Code.NONE
    assert leading.machine.outcome(Offset(11)) is Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_more_in_sync_replicas_than_there_are_replicas_are_not_asked_for() -> None:
    alone = Leadership(
        BrokerId(1),
        PartitionImage((BrokerId(1),), (BrokerId(1),), BrokerId(1)),
        epoch_start=Offset(0),
        high_watermark=Offset(0),
        live={},
        min_insync=2,
        lag_ms=LAG,
        now=Millis(NOW),
    )
    assert alone.appended(Offset(3))
    assert alone.high_watermark == 3
    assert alone.is_enough_for_all


def test_a_producer_waits_while_enough_are_in_sync() -> None:
    leading = Partition()
    leading.append(20)
    assert leading.machine.is_enough_for_all
    assert leading.machine.outcome(Offset(20)) is None
    leading.fetch(2, 20)
    leading.fetch(3, 20)
    assert leading.machine.outcome(Offset(20)) is Code.NONE


class TestJoining:
    def test_a_replica_with_all_that_is_committed_is_wished_for_and_counts_at_once(self) -> None:
        leading = Partition(isr=(1, 2))
        leading.append(15)
        leading.fetch(2, 15)
        leading.fetch(3, 15)
        assert leading.wish() == [1, 2, 3]
        leading.append(20)
        leading.fetch(2, 20)
        assert leading.watermark == 15, "the wish may be granted by now"
        leading.grant(leading.sent())
        assert leading.machine.isr == (1, 2, 3)
        assert leading.machine.partition_epoch == 8
        leading.fetch(3, 20)
        assert leading.watermark == 20

    def test_a_wish_names_the_life_of_each_member(self) -> None:
        leading = Partition(isr=(1, 2))
        leading.fetch(2, 10)
        leading.fetch(3, 10)
        members = ((1, 11), (2, 12), (3, 13))
        assert leading.sent() == IsrWish(members, LeaderEpoch(5), PartitionEpoch(7))  # type: ignore[arg-type]

    @pytest.mark.parametrize("offset", [9, 14])
    def test_a_replica_below_the_watermark_or_the_epochs_start_is_not_wished_for(self, offset: int) -> None:
        leading = Partition(isr=(1, 2), start=15)
        leading.fetch(3, offset)
        leading.fetch(3, offset)
        assert leading.wish() is None
        leading.fetch(3, 15)
        assert leading.wish() == [1, 2, 3]

    def test_a_replica_that_does_not_keep_up_is_not_wished_for(self) -> None:
        leading = Partition(isr=(1, 2), start=15)
        leading.append(20)
        leading.fetch(3, 15)
        assert leading.wish() is None, "it would be wished away again at once"
        leading.append(25)
        leading.fetch(3, 20)
        assert leading.wish() == [1, 2, 3], "it has what there was when it last asked"

    def test_a_replica_that_is_gone_or_lives_again_is_not_wished_for(self) -> None:
        leading = Partition(isr=(1, 2))
        leading.live[BrokerId(3)] = BrokerEpoch(23)
        leading.fetch(3, 10)
        assert leading.wish() is None
        del leading.live[BrokerId(3)]
        leading.fetch(3, 10)
        assert leading.wish() is None

    def test_one_wish_is_under_way_at_a_time(self) -> None:
        leading = Partition(isr=(1,))
        leading.fetch(2, 10)
        wish = leading.sent()
        leading.fetch(3, 10)
        leading.tick(LAG)
        assert leading.wish() is None
        leading.grant(wish)
        assert leading.wish() == [1, 2, 3], "the next one is decided with the answer"

    def test_the_watermark_waits_for_a_replica_that_keeps_up_so_that_it_can_join(self) -> None:
        leading = Partition(isr=(1,), min_insync=1)
        leading.append(20)
        assert leading.watermark == 20
        leading.fetch(3, 10)
        leading.append(30)
        leading.fetch(3, 20)
        leading.append(40)
        assert leading.watermark == 30, (
            "it had all that there was when it asked, so the next records wait for it"
        )
        leading.fetch(3, 30)
        assert leading.wish() == [1, 3]

    def test_the_watermark_does_not_wait_for_a_replica_that_fetches_no_more(self) -> None:
        """It was killed as it arrived: it is in no in-sync set, so no change of one tells of it."""
        leading = Partition(isr=(1,), min_insync=1)
        leading.machine.configure(min_insync=1, lag_ms=10 * SILENT_MS)
        leading.append(20)
        leading.fetch(3, 10)
        leading.append(30)
        leading.fetch(3, 20)
        leading.append(40)
        assert leading.watermark == 30
        assert leading.machine.deadline == leading.now + SILENT_MS + 1
        leading.tick(SILENT_MS)
        assert leading.watermark == 30, "a slow one is waited for"
        leading.tick(1)
        assert leading.watermark == 40
        assert leading.wish() is None
        leading.fetch(3, 40)
        assert leading.wish() == [1, 3], "it was slow, not dead"

    def test_an_ineligible_replica_holds_nothing_back_and_is_asked_for_later(self) -> None:
        leading = Partition(isr=(1, 2))
        leading.append(15)
        leading.fetch(3, 15)
        leading.append(20)
        leading.fetch(2, 20)
        leading.refuse(leading.sent(), Code.INELIGIBLE_REPLICA)
        assert leading.watermark == 20
        leading.fetch(3, 20)
        assert leading.wish() is None
        leading.now += QUIET_MS
        leading.fetch(3, 20)
        assert leading.wish() == [1, 2, 3]

    def test_a_replica_that_fetched_meanwhile_is_asked_for_without_another_fetch(self) -> None:
        leading = Partition(isr=(1, 2))
        leading.fetch(3, 10)
        leading.refuse(leading.sent(), Code.INELIGIBLE_REPLICA)
        leading.now += 1
        leading.fetch(3, 10)
        assert leading.wish() is None
        assert leading.machine.deadline == leading.now - 1 + QUIET_MS
        leading.tick(QUIET_MS)
        assert leading.wish() == [1, 2, 3]

    def test_a_replica_that_is_refused_again_and_again_is_asked_for_more_rarely(self) -> None:
        leading = Partition(isr=(1, 2))
        leading.fetch(2, 10)
        leading.fetch(3, 10)
        for quiet_ms in (QUIET_MS, 2 * QUIET_MS, 4 * QUIET_MS):
            leading.refuse(leading.sent(), Code.INELIGIBLE_REPLICA)
            leading.tick(quiet_ms - 1)
            assert leading.wish() is None
            leading.tick(1)
            assert leading.wish() == [1, 2, 3]
        leading.refuse(leading.sent(), Code.INELIGIBLE_REPLICA)
        leading.tick(QUIET_MS)
        leading.live[BrokerId(3)] = BrokerEpoch(23)
        leading.fetch(3, 10, life=23)
        assert leading.wish() == [1, 2, 3], "another life begins anew"

    def test_a_replica_that_asks_again_for_what_it_was_given_holds_nothing_back(self) -> None:
        leading = Partition(isr=(1, 2))
        leading.fetch(3, 10)
        leading.refuse(leading.sent(), Code.INELIGIBLE_REPLICA)
        leading.append(20)
        leading.fetch(2, 20)
        leading.now += QUIET_MS
        leading.fetch(3, 10)
        leading.append(30)
        leading.fetch(2, 30)
        assert leading.watermark == 20, "it kept up until now"
        leading.fetch(3, 10)
        assert leading.watermark == 30, "its disk is full: it was given the records and does not have them"
        leading.fetch(3, 30)
        assert leading.wish() == [1, 2, 3]

    def test_a_replica_that_has_nothing_more_to_fetch_is_asked_for_again(self) -> None:
        leading = Partition(isr=(1, 2))
        leading.fetch(3, 10)
        leading.refuse(leading.sent(), Code.INELIGIBLE_REPLICA)
        leading.tick(QUIET_MS - 1)
        assert leading.wish() is None
        leading.tick(1)
        assert leading.wish() == [1, 2, 3], "it was refused because of another, or was given up and is back"


class TestLeaving:
    def test_a_replica_that_was_not_caught_up_for_too_long_is_wished_away(self) -> None:
        leading = Partition()
        leading.append(20)
        leading.fetch(2, 20)
        leading.tick(LAG)
        assert leading.wish() is None
        assert leading.machine.deadline == NOW + LAG + 1
        leading.tick(1)
        assert leading.wish() == [1, 2]

    def test_a_replica_at_the_end_is_in_sync_whenever_it_fetched_last(self) -> None:
        leading = Partition()
        leading.fetch(2, 10)
        leading.fetch(3, 10)
        leading.tick(LAG * 100)
        assert leading.wish() is None
        assert leading.machine.deadline is None

    def test_a_replica_that_always_has_what_there_was_at_its_last_fetch_keeps_up(self) -> None:
        leading = Partition()
        for step in range(20):
            leading.append(20 + step * 10)
            leading.fetch(2, 20 + step * 10)
            leading.fetch(3, 10 + step * 10)
            leading.tick(LAG // 2)
        assert leading.wish() is None

    def test_it_counts_until_that_is_granted(self) -> None:
        leading = Partition()
        leading.append(20)
        leading.fetch(2, 20)
        leading.tick(LAG + 1)
        wish = leading.sent()
        leading.fetch(2, 20)
        assert leading.watermark == 10
        leading.grant(wish)
        assert leading.machine.isr == (1, 2)
        assert leading.watermark == 20

    def test_a_leader_that_is_alone_by_its_wish_commits_nothing(self) -> None:
        leading = Partition()
        leading.append(20)
        leading.tick(LAG + 1)
        wish = leading.sent()
        assert [broker for broker, _ in wish.isr] == [1]
        leading.grant(wish)
        assert leading.watermark == 10
        assert not leading.machine.is_enough_for_all


class TestOutcomes:
    @pytest.mark.parametrize("code", [Code.NETWORK_EXCEPTION, Code.REQUEST_TIMED_OUT, Code.NOT_CONTROLLER])
    def test_a_wish_whose_outcome_is_not_known_goes_again_and_counts(self, code: Code) -> None:
        leading = Partition(isr=(1, 2))
        leading.append(15)
        leading.fetch(3, 15)
        leading.append(20)
        leading.fetch(2, 20)
        wish = leading.sent()
        leading.refuse(wish, code)
        leading.tick(LAG * 3)
        assert leading.machine.wish == wish
        assert leading.watermark == 15

    def test_a_refused_wish_counts_while_a_copy_of_it_may_be_granted(self) -> None:
        leading = Partition(isr=(1, 2))
        leading.append(15)
        leading.fetch(3, 15)
        leading.append(20)
        leading.fetch(2, 20)
        wish = leading.sent()
        leading.refuse(wish, Code.REQUEST_TIMED_OUT)
        leading.refuse(leading.sent(), Code.INELIGIBLE_REPLICA)
        assert leading.watermark == 15
        assert leading.machine.deadline == leading.now + QUIET_MS
        del leading.live[BrokerId(3)]
        leading.tick(QUIET_MS)
        assert leading.wish() == [1, 2], "granted, it makes every copy of the other stale"
        leading.grant(leading.sent())
        assert leading.watermark == 20

    @pytest.mark.parametrize("code", [Code.INVALID_UPDATE_VERSION, Code.FENCED_LEADER_EPOCH])
    def test_an_overtaken_wish_waits_for_the_controllers_word(self, code: Code) -> None:
        leading = Partition(isr=(1, 2))
        leading.append(15)
        leading.fetch(3, 15)
        leading.append(20)
        leading.fetch(2, 20)
        leading.refuse(leading.sent(), code)
        leading.fetch(3, 15)
        assert leading.wish() is None
        assert leading.watermark == 15
        leading.live.pop(BrokerId(3))
        leading.machine.assigned(leading.state((1, 2), 8), Millis(leading.now))
        assert leading.watermark == 20

    def test_an_answer_that_the_controllers_word_has_overtaken_is_passed_over(self) -> None:
        leading = Partition(isr=(1, 2))
        leading.fetch(3, 10)
        wish = leading.sent()
        leading.machine.assigned(leading.state((1, 2, 3), 9), Millis(leading.now))
        leading.grant(wish, 8)
        assert leading.machine.partition_epoch == 9
        leading.machine.assigned(leading.state((1, 2), 8), Millis(leading.now))
        assert leading.machine.isr == (1, 2, 3)

    def test_replicas_come_and_go_with_a_reassignment(self) -> None:
        leading = Partition()
        leading.append(20)
        leading.fetch(2, 20)
        leading.live[BrokerId(4)] = BrokerEpoch(14)
        leading.machine.assigned(leading.state((1, 2), 8, replicas=(1, 2, 4)), Millis(leading.now))
        assert leading.watermark == 20
        with pytest.raises(NotLeaderOrFollower):
            leading.fetch(3, 20)
        leading.fetch(4, 20)
        assert leading.wish() == [1, 2, 4]


def test_the_low_watermark_is_the_smallest_start_of_the_replicas_that_live() -> None:
    leading = Partition()
    assert leading.machine.low_watermark(Offset(8)) == -1
    leading.fetch(2, 10, start=5)
    leading.fetch(3, 10, start=2)
    assert leading.machine.low_watermark(Offset(8)) == 2
    del leading.live[BrokerId(3)]
    assert leading.machine.low_watermark(Offset(8)) == 5
    assert leading.machine.low_watermark(Offset(4)) == 4


def test_a_replica_that_the_controller_has_taken_out_is_wished_for_when_it_fetches_again() -> None:
    partition = Partition()
    partition.append(20)
    partition.fetch(2, 20)
    partition.fetch(3, 20)
    partition.machine.assigned(partition.state((1, 2), 8), Millis(partition.now))
    assert partition.wish() is None
    partition.append(30)
    partition.fetch(2, 30)
    assert partition.watermark == 30  # not held up by a broker that stops
    partition.fetch(3, 30)
    assert partition.wish() == [1, 2, 3]


def test_a_replica_that_was_killed_holds_nothing_back_though_its_session_goes_on() -> None:
    partition = Partition()
    partition.append(20)
    partition.fetch(2, 20)
    partition.fetch(3, 20)
    partition.machine.assigned(partition.state((1, 2), 8), Millis(partition.now))
    partition.tick(LAG // 2)  # its registration stays until the session ends
    partition.append(30)
    partition.fetch(2, 30)
    assert partition.watermark == 30
    partition.machine.assigned(partition.state((1, 2), 9), Millis(partition.now))
    partition.append(40)
    partition.fetch(2, 40)
    assert partition.watermark == 40
    assert partition.wish() is None
