// Makes Apache Kafka's KIP-848 consumer lose a race of its own two threads, without any broker. Compiled and run by
// tests/groups/test_java_race.py. Every class of the client is the jar's own; this file lies in their package
// because they are not public. Two waits decide the order: one where the background thread looks up a leader, one in
// a deserializer of the application. Prints what the application's thread threw, and where its positions are then.

package org.apache.kafka.clients.consumer.internals;

import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.ApiVersions;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.internals.ClusterResourceListeners;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.MetadataResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.slf4j.Logger;

public final class PositionRace {
    private static final TopicPartition FIRST = new TopicPartition("t", 0);
    private static final TopicPartition SECOND = new TopicPartition("t", 1);
    private static final Uuid TOPIC_ID = Uuid.randomUuid();
    private static final LogContext LOG = new LogContext();

    private final CountDownLatch versionIsNoted = new CountDownLatch(1);
    private final CountDownLatch recordIsDecoded = new CountDownLatch(1);
    private final SubscriptionState subscriptions = new SubscriptionState(LOG, AutoOffsetResetStrategy.EARLIEST);
    private final ConsumerMetadata metadata = new SlowMetadata();
    private final PositionsValidator validator = new PositionsValidator(LOG, Time.SYSTEM, subscriptions, metadata);
    private final ApiVersions versions = new ApiVersions();
    private final Thread background = new Thread(() -> validator.validatePositionsOnMetadataChange(versions));

    public static void main(String[] args) throws Exception {
        new PositionRace().run();
    }

    private void run() throws Exception {
        subscriptions.assignFromUser(Set.of(FIRST, SECOND));
        learnOfEpoch(0);
        for (TopicPartition each : List.of(FIRST, SECOND)) {
            subscriptions.seekValidated(
                each, new SubscriptionState.FetchPosition(0, Optional.of(0), metadata.currentLeader(each)));
        }
        validator.validatePositionsOnMetadataChange(versions);
        learnOfEpoch(1); // as after any restart of a leader
        background.start();
        await(versionIsNoted);

        // From here on what AsyncKafkaConsumer.collectFetch does in the application's thread.
        System.out.println("may skip validation: " + validator.canSkipUpdateFetchPositions());
        try (Metrics metrics = new Metrics()) {
            int returned = collector(metrics).collectFetch(buffer(metrics)).numRecords();
            System.out.println("returned: " + returned);
        } catch (IllegalStateException thrown) {
            System.out.println("threw: " + thrown.getMessage());
        }
        recordIsDecoded.countDown();
        background.join();
        System.out.println("position of the first: " + subscriptions.position(FIRST).offset);
        System.out.println("position of the second: " + subscriptions.position(SECOND).offset);
    }

    private void learnOfEpoch(int epoch) {
        MetadataResponseData.MetadataResponseTopic topic =
            new MetadataResponseData.MetadataResponseTopic().setName("t").setTopicId(TOPIC_ID);
        for (TopicPartition each : List.of(FIRST, SECOND)) {
            topic.partitions().add(new MetadataResponseData.MetadataResponsePartition()
                .setPartitionIndex(each.partition()).setLeaderId(1).setLeaderEpoch(epoch)
                .setReplicaNodes(List.of(1)).setIsrNodes(List.of(1)));
        }
        MetadataResponseData data = new MetadataResponseData();
        data.brokers().add(new MetadataResponseData.MetadataResponseBroker()
            .setNodeId(1).setHost("localhost").setPort(9092));
        data.topics().add(topic);
        metadata.updateWithCurrentRequestVersion(
            new MetadataResponse(data, ApiKeys.METADATA.latestVersion()), false, Time.SYSTEM.milliseconds());
    }

    private FetchCollector<byte[], byte[]> collector(Metrics metrics) {
        FetchConfig config = new FetchConfig(1, 1 << 20, 500, 1 << 20, 500, true, "", IsolationLevel.READ_UNCOMMITTED);
        Deserializer<byte[]> key = new ByteArrayDeserializer();
        Deserializer<byte[]> value = (topic, bytes) -> {
            if (bytes[0] == SECOND.partition()) { // its position is about to be moved, and was looked at before
                recordIsDecoded.countDown();
                join(background);
            }
            return bytes;
        };
        return new FetchCollector<>(
            LOG, metadata, subscriptions, config, new Deserializers<>(key, value, metrics), manager(metrics), Time.SYSTEM);
    }

    private FetchBuffer buffer(Metrics metrics) {
        FetchBuffer buffer = new FetchBuffer(LOG);
        Logger log = LOG.logger(PositionRace.class);
        for (TopicPartition each : List.of(FIRST, SECOND)) {
            FetchResponseData.PartitionData data = new FetchResponseData.PartitionData()
                .setPartitionIndex(each.partition()).setHighWatermark(1).setLastStableOffset(1).setLogStartOffset(0)
                .setRecords(MemoryRecords.withRecords(
                    Compression.NONE, 0, new SimpleRecord(new byte[] {(byte) each.partition()})));
            FetchMetricsAggregator aggregator = new FetchMetricsAggregator(manager(metrics), Set.of(each));
            buffer.add(new CompletedFetch(
                log, subscriptions, BufferSupplier.create(), each, data, aggregator, 0L));
        }
        return buffer;
    }

    private static FetchMetricsManager manager(Metrics metrics) {
        return new FetchMetricsManager(metrics, new FetchMetricsRegistry());
    }

    private static void await(CountDownLatch latch) {
        try {
            if (!latch.await(60, TimeUnit.SECONDS)) {
                throw new AssertionError("the other thread did not come");
            }
        } catch (InterruptedException stopped) {
            throw new AssertionError(stopped);
        }
    }

    private static void join(Thread thread) {
        try {
            thread.join();
        } catch (InterruptedException stopped) {
            throw new AssertionError(stopped);
        }
    }

    // Metadata whose answer takes its time, as that of any thread that loses its core at this point.
    private final class SlowMetadata extends ConsumerMetadata {
        SlowMetadata() {
            super(100, 1000, 300_000, false, false, subscriptions, LOG, new ClusterResourceListeners());
        }

        @Override
        public LeaderAndEpoch currentLeader(TopicPartition partition) {
            if (Thread.currentThread() == background) {
                versionIsNoted.countDown();
                PositionRace.await(recordIsDecoded);
            }
            return super.currentLeader(partition);
        }
    }
}
