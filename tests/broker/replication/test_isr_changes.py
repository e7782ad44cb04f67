"""What the log says of in-sync replicas that stay as they are."""

from pathlib import Path

import pytest

from barnabas.broker.replication.isr_changes import why_kept
from barnabas.errors import Code
from barnabas.replication.leadership import IsrWish
from barnabas.types import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition
from tests.broker.replication.test_replication import FAST, produce, run
from tests.broker.replication.trio import ONE, THREE, TWO, Trio, until

KEPT = "t-0: in sync stay 1,2 for now: "
REFUSED = (
    f"{KEPT}broker 3 was not taken, because it is stopping or gone, or has started anew since it caught up; "
    "the leader tries again when it has seen it fetch"
)


def wish(*brokers: BrokerId) -> IsrWish:
    members = tuple((broker, BrokerEpoch(7)) for broker in brokers)
    return IsrWish(members, LeaderEpoch(1), PartitionEpoch(1))


@pytest.mark.parametrize(
    ("wanted", "code", "sentence"),
    [
        ((ONE, TWO, THREE), Code.INELIGIBLE_REPLICA, REFUSED),
        (
            (ONE,),
            Code.INVALID_UPDATE_VERSION,
            f"{KEPT}the partition has changed meanwhile, and the controller is about to tell how it is",
        ),
        (
            (ONE,),
            Code.UNKNOWN_SERVER_ERROR,
            f"{KEPT}the controller could not make it 1 (UNKNOWN_SERVER_ERROR), and is asked again",
        ),
    ],
)
def test_the_log_says_why_replicas_stay_in_sync_and_what_comes_next(
    wanted: tuple[BrokerId, ...], code: Code, sentence: str
) -> None:
    assert why_kept(TopicPartition("t", 0), (ONE, TWO), wish(*wanted), code) == sentence


def test_a_replica_that_the_controller_does_not_take_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="barnabas.replication")

    async def work(trio: Trio) -> None:
        await trio.create("t")
        await produce(trio, "t", b"a")
        await trio.stop(THREE)
        await produce(trio, "t", b"b")
        trio.grants = False
        await trio.start(THREE)
        await until(lambda: REFUSED in caplog.messages, "the sentence")

    run(tmp_path, work, **FAST)
