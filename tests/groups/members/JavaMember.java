// A member of a group that uses Apache Kafka's Java consumer, of either protocol. Compiled and run by
// tests/groups/group.py; takes settings as name=value and tells its story as members/telling.py says.

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class JavaMember implements ConsumerRebalanceListener {
    private static final String LOST_RACE = "Cannot set a new position without a valid current position";
    private static final PrintStream STORY = System.out;
    private static volatile boolean leaving = false;

    private final String topic;
    private final TreeMap<Integer, Long> pending = new TreeMap<>();
    private final KafkaConsumer<byte[], byte[]> consumer;

    private JavaMember(String topic, Map<String, Object> settings) {
        this.topic = topic;
        this.consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic), this);
    }

    public static void main(String[] args) {
        System.setOut(System.err); // a log line must not land in the story
        Map<String, Object> settings = new HashMap<>();
        for (int at = 1; at < args.length; at++) {
            String[] setting = args[at].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        Thread watch = new Thread(JavaMember::waitForEnd);
        watch.setDaemon(true);
        watch.start();
        new JavaMember(args[0], settings).run();
    }

    private static void waitForEnd() {
        try {
            while (System.in.read() >= 0) {
            }
        } catch (java.io.IOException ended) {
            // as good as an end
        }
        leaving = true;
    }

    private void run() {
        while (!leaving) {
            List<String> rows = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> record : poll()) {
                rows.add("[" + record.partition() + "," + record.offset() + "]");
                pending.put(record.partition(), record.offset() + 1);
            }
            if (!rows.isEmpty()) {
                tell("records", "\"rows\":[" + String.join(",", rows) + "]");
            }
            if (!pending.isEmpty()) {
                commit();
            }
        }
        consumer.close();
        tell("left", "\"partitions\":[]");
    }

    // The KIP-848 consumer may throw this when a leader's epoch has changed: its background thread asks for a position
    // to be validated while the application's thread moves it (PositionRace.java shows it without a broker). What the
    // same poll had taken from other partitions is lost to us, their positions are past it: so we go back, as every
    // application would have to. The ledger holds how often against how often a leader changed.
    private ConsumerRecords<byte[], byte[]> poll() {
        try {
            return consumer.poll(Duration.ofMillis(100));
        } catch (IllegalStateException thrown) {
            if (thrown.getClass() != IllegalStateException.class || !LOST_RACE.equals(thrown.getMessage())) {
                throw thrown;
            }
            tell("stumbled", "\"why\":\"" + LOST_RACE + "\"");
            goBack();
            return ConsumerRecords.empty();
        }
    }

    // To the end of what was told: that is committed, or still to be.
    private void goBack() {
        consumer.committed(consumer.assignment()).forEach((place, committed) -> {
            Long next = pending.get(place.partition());
            if (next != null) {
                consumer.seek(place, next);
            } else if (committed != null) {
                consumer.seek(place, committed.offset());
            } else {
                consumer.seekToBeginning(List.of(place));
            }
        });
    }

    private void commit() {
        List<String> rows = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        pending.forEach((partition, at) -> {
            rows.add("[" + partition + "," + at + "]");
            offsets.put(new TopicPartition(topic, partition), new OffsetAndMetadata(at));
        });
        String told = "\"offsets\":[" + String.join(",", rows) + "]";
        tell("committing", told);
        try {
            consumer.commitSync(offsets, Duration.ofSeconds(10));
            pending.clear();
            tell("committed", told);
        } catch (KafkaException refused) {
            tell("refused", told + ",\"why\":\"" + refused.getClass().getSimpleName() + "\"");
        }
    }

    private static synchronized void tell(String event, String facts) {
        String line = "{\"at\":" + System.nanoTime() + ",\"event\":\"" + event + "\"," + facts + "}\n";
        STORY.write(line.getBytes(StandardCharsets.UTF_8), 0, line.length());
        STORY.flush();
    }

    private void tellPartitions(String event, Collection<TopicPartition> places) {
        List<String> numbers = new ArrayList<>();
        places.forEach(place -> numbers.add(String.valueOf(place.partition())));
        int generation = consumer.groupMetadata().generationId();
        tell(event, "\"partitions\":[" + String.join(",", numbers) + "],\"generation\":" + generation);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        tellPartitions("assigned", places);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        places.forEach(place -> pending.remove(place.partition()));
        tellPartitions("revoked", places);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> places) {
        places.forEach(place -> pending.remove(place.partition()));
        tellPartitions("lost", places);
    }
}
