"""What a broker makes of requests to its transaction coordinators: every version, bad input, restarts, timeouts."""

from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators.groups import OFFSETS_TOPIC
from barnabas.broker.coordinators.host import NO_CONTEXT, Author
from barnabas.errors import Code, CoordinatorLoadInProgress
from barnabas.testing import Broker
from barnabas.types import Millis, ProducerId
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.coordinator import FindCoordinatorRequest
from barnabas.wire.messages.offsets import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from barnabas.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.topics import DeleteTopicsRequest
from barnabas.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.messages.txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.memory_cluster import Members
from tests.broker.speaking import connect, create
from tests.deadline import eventually
from tests.raw import RawConnection

GROUP = "group-of-transactions"


@pytest.fixture
def topic(topic: str, connection: RawConnection) -> str:
    """The same, and it is there."""
    create(connection, topic)
    return topic


@pytest.fixture
def name(topic: str) -> str:
    """A transactional id that is this test's own."""
    return f"id-of-{topic}"


def init(
    connection: RawConnection, name: str, version: int = 5, timeout_ms: int = 60_000, **more: Any
) -> InitProducerIdResponse:
    """Be the producer of a transactional id; its coordinator may have to be made first."""

    def ask() -> InitProducerIdResponse | None:
        connection.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
        request = InitProducerIdRequest(name, timeout_ms, **more)
        answer: InitProducerIdResponse = connection.ask(request, version)
        waits = (Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS)
        return None if answer.error_code in waits else answer

    found = eventually(ask, f"a coordinator of {name}")
    assert found is not None
    return found


def add(connection: RawConnection, name: str, producer: Any, *topics: str, version: int = 3) -> list[int]:
    """The codes of partition 0 of each topic."""
    wanted = [AddPartitionsToTxnTopic(topic, [0]) for topic in topics]
    request = AddPartitionsToTxnRequest(
        [],
        name,
        producer.producer_id,
        producer.producer_epoch,
        wanted,
    )
    rows = connection.ask(request, version).results_by_topic_v3_and_below
    return [row.results_by_partition[0].partition_error_code for row in rows]


def end(connection: RawConnection, name: str, producer: Any, *, commit: bool = True, version: int = 5) -> Any:
    request = EndTxnRequest(name, producer.producer_id, producer.producer_epoch, commit)
    return connection.ask(request, version)


def state(connection: RawConnection, name: str) -> str:
    (row,) = connection.ask(DescribeTransactionsRequest([name]), 0).transaction_states
    return str(row.transaction_state)


@pytest.mark.parametrize("version", range(7))
def test_a_producer_begins_in_every_version(connection: RawConnection, name: str, version: int) -> None:
    first = init(connection, name, version)
    assert first.error_code == Code.NONE
    second = init(connection, name, version)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)


def test_clients_are_told_of_the_newest_transactions(connection: RawConnection) -> None:
    answer = connection.ask(ApiVersionsRequest("test", "1"), 4)
    (finalized,) = answer.finalized_features
    assert (finalized.name, finalized.max_version_level) == ("transaction.version", 2)
    (supported,) = answer.supported_features
    assert supported.min_version >= 1  # older clients refuse a broker with a 0 here
    spoken = {row.api_key: row.max_version for row in answer.api_keys}
    assert spoken[ApiKey.END_TXN] == 5


@pytest.mark.parametrize("version", range(4))
def test_a_transaction_of_an_older_client_keeps_its_epoch(
    connection: RawConnection, topic: str, name: str, version: int
) -> None:
    producer = init(connection, name)
    assert add(connection, name, producer, topic, version=version) == [Code.NONE]
    assert state(connection, name) == "Ongoing"
    assert end(connection, name, producer, version=version).error_code == Code.NONE
    assert state(connection, name) == "CompleteCommit"
    assert add(connection, name, producer, topic, version=version) == [Code.NONE]
    assert end(connection, name, producer, commit=False, version=version).error_code == Code.NONE
    assert state(connection, name) == "CompleteAbort"


def test_of_partitions_of_which_one_is_not_there_none_is_added(
    connection: RawConnection, topic: str, name: str
) -> None:
    producer = init(connection, name)
    codes = add(connection, name, producer, topic, f"no-{topic}")
    assert sorted(codes) == [Code.UNKNOWN_TOPIC_OR_PARTITION, Code.OPERATION_NOT_ATTEMPTED]
    assert state(connection, name) == "Empty"


@pytest.mark.parametrize(("version", "code"), [(1, Code.INVALID_PRODUCER_EPOCH), (2, Code.PRODUCER_FENCED)])
def test_an_older_producer_is_fenced_in_words_that_it_knows(
    connection: RawConnection, topic: str, name: str, version: int, code: Code
) -> None:
    older = init(connection, name)
    init(connection, name)
    assert add(connection, name, older, topic, version=version) == [code]
    assert end(connection, name, older, version=version).error_code == code
    request = AddOffsetsToTxnRequest(name, older.producer_id, older.producer_epoch, GROUP)
    assert connection.ask(request, version).error_code == code


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (InitProducerIdRequest("", 1000), Code.INVALID_REQUEST),
        (InitProducerIdRequest("some", 0), Code.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("some", 900_001), Code.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("some", 1000, 5, -1), Code.INVALID_REQUEST),
        (InitProducerIdRequest("some", 1000, -1, 5), Code.INVALID_REQUEST),
        (InitProducerIdRequest("some", 1000, enable2_pc=True), Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (InitProducerIdRequest("x" * 1_000_000, 1000), Code.INVALID_REQUEST),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_no_producer_can_be_is_refused(connection: RawConnection, asked: Any, code: Code) -> None:
    init(connection, "some")
    assert connection.ask(asked, 6).error_code == code


def test_an_end_that_comes_twice_or_too_late(connection: RawConnection, topic: str, name: str) -> None:
    producer = init(connection, name)
    assert end(connection, name, producer).error_code == Code.INVALID_TXN_STATE
    add(connection, name, producer, topic)
    first = end(connection, name, producer)
    again = end(connection, name, producer)
    assert (first.producer_id, first.producer_epoch) == (again.producer_id, again.producer_epoch)
    assert first.producer_epoch == producer.producer_epoch + 1
    assert end(connection, name, producer, commit=False).error_code == Code.INVALID_TXN_STATE
    add(connection, name, first, topic)
    assert end(connection, name, producer).error_code == Code.PRODUCER_FENCED
    assert state(connection, name) == "Ongoing"
    assert end(connection, name, first).error_code == Code.NONE
    assert end(connection, "never-heard-of", producer).error_code == Code.INVALID_PRODUCER_ID_MAPPING


def test_brokers_add_and_verify_for_several_transactions_at_once(
    connection: RawConnection, topic: str, name: str
) -> None:
    producer = init(connection, name)
    init(connection, f"{name}-2")
    wanted = [AddPartitionsToTxnTopic(topic, [0])]

    def ask(*, verify: bool) -> list[int]:
        rows = [
            AddPartitionsToTxnTransaction(each, producer.producer_id, producer.producer_epoch, verify, wanted)
            for each in (name, f"{name}-2", "never-heard-of")
        ]
        answer = connection.ask(AddPartitionsToTxnRequest(rows), 5)
        return [
            row.topic_results[0].results_by_partition[0].partition_error_code
            for row in answer.results_by_transaction
        ]

    unknown = Code.INVALID_PRODUCER_ID_MAPPING
    assert ask(verify=True) == [Code.TRANSACTION_ABORTABLE, unknown, unknown]
    assert ask(verify=False) == [Code.NONE, unknown, unknown]
    assert ask(verify=True) == [Code.NONE, unknown, unknown]
    end(connection, name, producer, commit=False)


def fetched(connection: RawConnection, topic: str, *, stable: bool) -> tuple[int, int]:
    group = OffsetFetchGroup(GROUP, topics=[OffsetFetchTopic(topic, [0])])
    answer = connection.ask(OffsetFetchRequest(groups=[group], require_stable=stable), 9)
    (group_row,) = answer.groups
    if group_row.error_code:
        return -1, group_row.error_code
    (row,) = group_row.topics[0].partitions
    return row.committed_offset, row.error_code


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(APIS[ApiKey.TXN_OFFSET_COMMIT].highest + 1))
def test_offsets_are_shown_when_their_transaction_is_committed(
    connection: RawConnection, topic: str, name: str, version: int, commit: bool
) -> None:
    producer = init(connection, name)
    ids = producer.producer_id, producer.producer_epoch
    connection.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
    if version < 5:
        assert connection.ask(AddOffsetsToTxnRequest(name, *ids, GROUP), 3).error_code == Code.NONE
    parts = [TxnOffsetCommitRequestPartition(0, 42)]
    request = TxnOffsetCommitRequest(name, GROUP, *ids, topics=[TxnOffsetCommitRequestTopic(topic, parts)])
    answer = connection.ask(request, version)
    assert answer.topics[0].partitions[0].error_code == Code.NONE
    assert fetched(connection, topic, stable=False) == (-1, Code.NONE)
    assert fetched(connection, topic, stable=True) == (-1, Code.UNSTABLE_OFFSET_COMMIT)
    assert end(connection, name, producer, commit=commit).error_code == Code.NONE
    assert fetched(connection, topic, stable=True) == (42 if commit else -1, Code.NONE)


@pytest.mark.parametrize(("version", "code"), [(3, Code.INVALID_TXN_STATE), (4, Code.TRANSACTION_ABORTABLE)])
def test_offsets_of_a_group_that_was_not_added_are_refused(
    connection: RawConnection, topic: str, name: str, version: int, code: Code
) -> None:
    producer = init(connection, name)
    connection.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
    parts = [TxnOffsetCommitRequestPartition(0, 42)]
    request = TxnOffsetCommitRequest(
        name,
        GROUP,
        producer.producer_id,
        producer.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(topic, parts)],
    )
    answer = connection.ask(request, version)
    assert answer.topics[0].partitions[0].error_code == code
    assert fetched(connection, topic, stable=True) == (-1, Code.NONE)


def test_offsets_that_cross_a_marker_on_their_way_in_are_sent_again(tmp_path: Path) -> None:
    """A coordinator that takes over sends the markers of the transaction before again. Such a one may come while the
    coordinator is asked about the next transaction; what it answered then lets nothing in, and has to be asked anew."""
    with Members(tmp_path, 1) as members, connect(members[1]) as connection:
        create(connection, "orders")
        producer = init(connection, "mine")
        ids = ProducerId(producer.producer_id), producer.producer_epoch
        connection.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        assert connection.ask(AddOffsetsToTxnRequest("mine", *ids, GROUP), 3).error_code == Code.NONE
        parts = [TxnOffsetCommitRequestPartition(0, 42)]
        request = TxnOffsetCommitRequest(
            "mine", GROUP, *ids, topics=[TxnOffsetCommitRequestTopic("orders", parts)]
        )
        groups = members[1].running.groups

        async def verified() -> Author:
            leader = groups.host(GROUP).partition
            return Author(*ids, leader.verification(*ids, -1, bumps_epochs=False, now=Millis(0)))

        async def append(author: Author) -> None:
            groups.host(GROUP).ask(request, NO_CONTEXT, author)

        author = members[1].run(verified())
        rows = [WritableTxnMarkerTopic(OFFSETS_TOPIC.name, [groups.partition_of(GROUP)])]
        late = WritableTxnMarker(*ids, False, rows, 0)
        answer = connection.ask(WriteTxnMarkersRequest([late]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == Code.NONE
        with pytest.raises(CoordinatorLoadInProgress):
            members[1].run(append(author))
        assert connection.ask(request, 3).topics[0].partitions[0].error_code == Code.NONE
        assert end(connection, "mine", producer).error_code == Code.NONE
        assert fetched(connection, "orders", stable=True) == (42, Code.NONE)


def test_offsets_in_an_open_transaction_are_pending_after_a_restart(tmp_path: Path) -> None:
    with Broker({}, data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "orders")
        producer = init(connection, "mine")
        ids = producer.producer_id, producer.producer_epoch
        connection.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        parts = [TxnOffsetCommitRequestPartition(0, 42)]
        request = TxnOffsetCommitRequest(
            "mine", GROUP, *ids, topics=[TxnOffsetCommitRequestTopic("orders", parts)]
        )
        assert connection.ask(request, 5).topics[0].partitions[0].error_code == Code.NONE
    with Broker({}, data=tmp_path) as broker, connect(broker) as connection:
        eventually(
            lambda: fetched(connection, "orders", stable=True)[1] == Code.UNSTABLE_OFFSET_COMMIT,
            "the coordinator to get there",
        )
        assert eventually(lambda: state(connection, "mine") == "Ongoing", "the coordinator to get there")
        assert end(connection, "mine", producer).error_code == Code.NONE
        assert fetched(connection, "orders", stable=True) == (42, Code.NONE)
    with Broker({}, data=tmp_path) as broker, connect(broker) as connection:
        assert eventually(
            lambda: fetched(connection, "orders", stable=True) == (42, Code.NONE),
            "the coordinator to get there",
        )
        assert eventually(
            lambda: state(connection, "mine") == "CompleteCommit", "the coordinator to get there"
        )


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}
    with Broker(settings) as broker, connect(broker) as connection:
        create(connection, "orders")
        producer = init(connection, "mine", timeout_ms=50)
        add(connection, "mine", producer, "orders")
        assert eventually(
            lambda: state(connection, "mine") == "CompleteAbort", "the coordinator to get there"
        )
        assert end(connection, "mine", producer).error_code == Code.TRANSACTION_ABORTABLE
        following = end(connection, "mine", producer, commit=False)
        assert (following.error_code, following.producer_epoch) == (Code.NONE, producer.producer_epoch + 1)


def test_a_transactional_id_that_is_not_used_is_forgotten() -> None:
    settings = {
        "transactional.id.expiration.ms": "50",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
    }
    with Broker(settings) as broker, connect(broker) as connection:
        init(connection, "mine")
        assert eventually(
            lambda: connection.ask(ListTransactionsRequest(), 2).transaction_states == [],
            "the coordinator to get there",
        )
        (row,) = connection.ask(DescribeTransactionsRequest(["mine"]), 0).transaction_states
        assert row.error_code == Code.TRANSACTIONAL_ID_NOT_FOUND


def test_a_prepared_transaction_is_ended_by_another_producer(tmp_path: Path) -> None:
    settings = {"transaction.two.phase.commit.enable": "true"}
    with Broker(settings, data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "orders")
        producer = init(connection, "mine", 6, enable2_pc=True)
        add(connection, "mine", producer, "orders")
    with Broker(settings, data=tmp_path) as broker, connect(broker) as connection:
        heir = init(connection, "mine", 6, enable2_pc=True, keep_prepared_txn=True)
        assert heir.ongoing_txn_producer_id == producer.producer_id
        assert heir.ongoing_txn_producer_epoch == producer.producer_epoch
        assert end(connection, "mine", producer).error_code == Code.PRODUCER_FENCED
        assert end(connection, "mine", heir).error_code == Code.NONE
        assert state(connection, "mine") == "CompleteCommit"


def test_a_topic_that_goes_holds_no_transaction_up() -> None:
    with Broker() as broker, connect(broker) as connection:
        create(connection, "orders")
        create(connection, "going")
        producer = init(connection, "mine")
        add(connection, "mine", producer, "orders", "going")
        connection.ask(DeleteTopicsRequest(topic_names=["going"], timeout_ms=60_000), 5)
        assert end(connection, "mine", producer).error_code == Code.NONE
        assert eventually(
            lambda: state(connection, "mine") == "CompleteCommit", "the coordinator to get there"
        )


def test_the_list_is_narrowed(connection: RawConnection, name: str) -> None:
    producer = init(connection, name)

    def names(**filters: Any) -> set[str]:
        answer = connection.ask(ListTransactionsRequest(**filters), 2)
        assert answer.error_code == Code.NONE
        return {row.transactional_id for row in answer.transaction_states}

    assert name in names()
    assert name in names(state_filters=["Empty"])
    assert name not in names(state_filters=["Ongoing"])
    assert names(producer_id_filters=[producer.producer_id]) == {name}
    assert names(transactional_id_pattern=f"{name[:-1]}.") >= {name}
    assert name not in names(transactional_id_pattern=name[:-1])
    answer = connection.ask(ListTransactionsRequest(["Sleeping"]), 2)
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Sleeping"], [])
    broken = connection.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert broken.error_code == Code.INVALID_REGULAR_EXPRESSION


def test_a_marker_by_hand_ends_a_transaction_in_its_partition(
    connection: RawConnection, topic: str, name: str
) -> None:
    producer = init(connection, name)
    marker = WritableTxnMarker(
        producer.producer_id, producer.producer_epoch, False, [WritableTxnMarkerTopic(topic, [0])], 0
    )
    answer = connection.ask(WriteTxnMarkersRequest([marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == Code.NONE
