"""Owns one sound request of every API in every version we speak: what fuzzing starts from.

Called by test_fuzz. The requests harm nobody as they are: topics are only validated, what is deleted is not
there, and a fetch does not wait.
"""

from typing import Any

from barnabas.wire.apis import APIS
from barnabas.wire.batch import Record, encode_batch
from barnabas.wire.compression import Compression
from barnabas.wire.messages import (
    api_versions,
    cluster,
    configs,
    consumer_groups,
    controlling,
    coordinator,
    delete_records,
    epochs,
    fetch,
    groups,
    list_offsets,
    log_dirs,
    metadata,
    offsets,
    placement,
    produce,
    producers,
    topics,
    transactions,
    txn_markers,
)
from barnabas.wire.schema import NO_ID
from tests.raw import frame_of

TOPIC = "fuzzed"
GROUP = "fuzzed-group"
_TOPIC_RESOURCE = 2


def batch(count: int = 3, codec: Compression = Compression.NONE, **fields: Any) -> bytes:
    records = [
        Record(offset, 1_750_000_000_000 + offset, b"key-%d" % offset, b"value " * 5, (("h", b"1"),))
        for offset in range(count)
    ]
    return encode_batch(records, codec=codec, **fields)


def produce_request(topic: str, records: bytes, partition: int = 0, acks: int = -1) -> produce.ProduceRequest:
    parts = [produce.ProducePartition(partition, memoryview(records))]
    return produce.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[produce.ProduceTopic(topic, parts)])


def fetch_request(topic: str, offset: int = 0, max_bytes: int = 1 << 20) -> fetch.FetchRequest:
    part = fetch.FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[fetch.FetchTopic(topic, [part])])


def list_offsets_request(topic: str, timestamp_ms: int) -> list_offsets.ListOffsetsRequest:
    part = list_offsets.ListOffsetsPartition(0, timestamp=timestamp_ms)
    return list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic(topic, [part])])


def group_requests() -> list[Any]:
    """Of a group that nobody is in. No join waits: an unknown member is refused at once, a new one gets its id."""
    protocol = groups.JoinGroupProtocol("range", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0")
    committed = offsets.OffsetCommitTopic(TOPIC, [offsets.OffsetCommitPartition(0, 1)])
    wanted = [offsets.OffsetFetchTopic(TOPIC, [0])]
    owned = [consumer_groups.TopicPartitions(NO_ID, [0])]
    return [
        groups.JoinGroupRequest(GROUP, 10_000, 10_000, "gone", None, "consumer", [protocol]),
        groups.SyncGroupRequest(GROUP, 1, "gone", assignments=[groups.SyncGroupAssignment("gone", b"a")]),
        groups.HeartbeatRequest(GROUP, 1, "gone"),
        groups.LeaveGroupRequest(GROUP, "gone", [groups.LeavingMember("gone")]),
        groups.DescribeGroupsRequest([GROUP]),
        groups.ListGroupsRequest(["Stable"], ["classic"]),
        groups.DeleteGroupsRequest([GROUP]),
        offsets.OffsetCommitRequest(GROUP, -1, "", topics=[committed]),
        offsets.OffsetFetchRequest(GROUP, wanted, [offsets.OffsetFetchGroup(GROUP, topics=wanted)]),
        offsets.OffsetDeleteRequest(
            GROUP, [offsets.OffsetDeleteTopic(TOPIC, [offsets.OffsetDeletePartition(0)])]
        ),
        consumer_groups.ConsumerGroupHeartbeatRequest(
            GROUP, "gone", 5, subscribed_topic_names=[TOPIC], topic_partitions=owned
        ),
        consumer_groups.ConsumerGroupDescribeRequest([GROUP]),
    ]


def transaction_requests() -> list[Any]:
    """Of a transactional id that was never heard of."""
    added = [transactions.AddPartitionsToTxnTopic(TOPIC, [0])]
    batched = transactions.AddPartitionsToTxnTransaction("gone", 7, 0, topics=added)
    committed = transactions.TxnOffsetCommitRequestPartition(0, 1)
    marked = [txn_markers.WritableTxnMarkerTopic("never", [0])]
    return [
        transactions.AddPartitionsToTxnRequest([batched], "gone", 7, 0, added),
        transactions.AddOffsetsToTxnRequest("gone", 7, 0, GROUP),
        transactions.EndTxnRequest("gone", 7, 0, True),
        transactions.TxnOffsetCommitRequest(
            "gone", GROUP, 7, 0, topics=[transactions.TxnOffsetCommitRequestTopic(TOPIC, [committed])]
        ),
        transactions.DescribeTransactionsRequest(["gone"]),
        transactions.ListTransactionsRequest(["Ongoing"], [7], 1, "gone"),
        txn_markers.WriteTxnMarkersRequest([txn_markers.WritableTxnMarker(7, 0, False, marked, 1)]),
    ]


def cluster_requests() -> list[Any]:
    """What other brokers and administrators of clusters ask; brokers of this cluster have other epochs."""
    moved = placement.ReassignableTopic("never", [placement.ReassignablePartition(0, [1])])
    in_sync = [controlling.AlterPartitionBrokerState(1, 1)]
    altered = controlling.AlterPartitionTopic(NO_ID, [controlling.AlterPartitionData(0, 1, in_sync)])
    led = controlling.LeaderAndIsrPartitionState(0, 1, 1, 1, [1], 1, [1])
    known = controlling.UpdateMetadataPartitionState(0, 1, 1, 1, [1], 1, [1])
    stopped = controlling.StopReplicaPartitionState(0, 1)
    return [
        controlling.LeaderAndIsrRequest(
            9, topic_states=[controlling.LeaderAndIsrTopicState("never", NO_ID, [led])]
        ),
        controlling.StopReplicaRequest(
            9, topic_states=[controlling.StopReplicaTopicState("never", [stopped])]
        ),
        controlling.UpdateMetadataRequest(
            9,
            topic_states=[controlling.UpdateMetadataTopicState("never", NO_ID, [known])],
            live_brokers=[controlling.UpdateMetadataBroker(9)],
        ),
        controlling.ControlledShutdownRequest(9, 1),
        controlling.AlterPartitionRequest(9, 1, [altered]),
        placement.ElectLeadersRequest(0, [placement.ElectLeadersTopic("never", [0])], 1000),
        placement.AlterPartitionReassignmentsRequest(1000, topics=[moved]),
        placement.ListPartitionReassignmentsRequest(1000),
        log_dirs.AlterReplicaLogDirsRequest(
            [log_dirs.AlterReplicaLogDir("/never", [log_dirs.AlterReplicaLogDirTopic("never", [0])])]
        ),
        cluster.UnregisterBrokerRequest(9),
        configs.ListConfigResourcesRequest([_TOPIC_RESOURCE]),
        metadata.DescribeTopicPartitionsRequest([metadata.DescribeTopicPartitionsTopic(TOPIC)]),
    ]


def requests() -> list[Any]:
    """At least one request of every API."""
    setting = configs.AlterableConfig("retention.ms", "86400000")
    step = configs.IncrementalAlterableConfig("retention.ms", 0, "86400000")
    made = topics.CreatableTopic(
        "never", 2, 1, configs=[topics.CreatableTopicConfig("segment.bytes", "1048576")]
    )
    found: list[Any] = [
        produce_request(TOPIC, batch()),
        produce_request(TOPIC, batch(20, Compression.GZIP)),
        produce_request(TOPIC, batch(2, producer_id=7, producer_epoch=0, base_sequence=0)),
        fetch_request(TOPIC),
        list_offsets_request(TOPIC, -1),
        list_offsets_request(TOPIC, 1_750_000_000_001),
        metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)], False),
        coordinator.FindCoordinatorRequest("group", 0, ["group"]),
        api_versions.ApiVersionsRequest("fuzz", "1.0"),
        topics.CreateTopicsRequest([made], 1000, validate_only=True),
        topics.DeleteTopicsRequest([topics.DeleteTopicState("never")], ["never"], 1000),
        topics.CreatePartitionsRequest([topics.CreatePartitionsTopic(TOPIC, 5)], 1000, validate_only=True),
        delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic(TOPIC, [delete_records.DeleteRecordsPartition(0, 1)])], 1000
        ),
        producers.InitProducerIdRequest(None, 60_000),
        producers.AllocateProducerIdsRequest(1, 0),
        epochs.OffsetForLeaderEpochRequest(
            topics=[epochs.OffsetForLeaderTopic(TOPIC, [epochs.OffsetForLeaderPartition(0)])]
        ),
        configs.DescribeConfigsRequest([configs.DescribeConfigsResource(_TOPIC_RESOURCE, TOPIC)]),
        configs.AlterConfigsRequest(
            [configs.AlterConfigsResource(_TOPIC_RESOURCE, TOPIC, [setting])], validate_only=True
        ),
        configs.IncrementalAlterConfigsRequest(
            [configs.IncrementalAlterConfigsResource(_TOPIC_RESOURCE, TOPIC, [step])], validate_only=True
        ),
        log_dirs.DescribeLogDirsRequest([log_dirs.DescribableLogDirTopic(TOPIC, [0])]),
        cluster.DescribeClusterRequest(),
        producers.DescribeProducersRequest([producers.DescribeProducersTopic(TOPIC, [0])]),
        *group_requests(),
        *transaction_requests(),
        *cluster_requests(),
    ]
    assert {request.api for request in found} == set(APIS), "an API has no request to be fuzzed"
    return found


def frames() -> list[bytes]:
    """Every request in every version, without the length in front."""
    return [
        frame_of(request, version)[4:]
        for request in requests()
        for version in range(APIS[request.api].lowest, APIS[request.api].highest + 1)
    ]
