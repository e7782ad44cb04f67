// Drives Apache Kafka's Java client for the tests: one JSON object a line on standard input, one answer a line on
// standard output ({"result": ...}, {"code": N, "text": ...} when the broker refused, {"failure": ...} otherwise).
// Run from source by tests/other_clients/adapters/java.py; ends when its input ends.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class ClientDriver {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final Admin admin;
    private final List<KafkaProducer<byte[], byte[]>> transactional = new ArrayList<>();

    private ClientDriver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // a log line must not land between two answers
        ClientDriver driver = new ClientDriver(args[0]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("{}");
        answers.flush();
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(driver.answer(JSON.readTree(line))));
            answers.flush();
        }
        driver.admin.close(Duration.ofSeconds(5));
    }

    private ObjectNode answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            answer.set("result", run(request));
        } catch (Exception thrown) {
            Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            if (cause instanceof ApiException && Errors.forException(cause) != Errors.UNKNOWN_SERVER_ERROR) {
                answer.put("code", Errors.forException(cause).code()).put("text", cause.getMessage());
            } else {
                answer.put("failure", String.valueOf(cause));
            }
        }
        return answer;
    }

    private JsonNode run(JsonNode request) throws Exception {
        String topic = request.path("topic").asText();
        TopicPartition place = new TopicPartition(topic, request.path("partition").asInt());
        switch (request.get("verb").asText()) {
            case "create":
                Map<String, String> configs = new HashMap<>();
                request.get("configs").fields().forEachRemaining(e -> configs.put(e.getKey(), e.getValue().asText()));
                NewTopic fresh = new NewTopic(topic, request.get("partitions").asInt(), (short) -1).configs(configs);
                admin.createTopics(List.of(fresh)).all().get();
                return null;
            case "delete":
                admin.deleteTopics(List.of(topic)).all().get();
                return null;
            case "topics":
                return JSON.valueToTree(admin.listTopics().names().get());
            case "partitionCount":
                return JSON.valueToTree(partitionCount(topic));
            case "addPartitions":
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(request.get("total").asInt()))).all().get();
                return null;
            case "configs":
                return configs(topic);
            case "setConfig":
                ConfigEntry entry = new ConfigEntry(request.get("name").asText(), request.get("value").asText());
                AlterConfigOp set = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(resource(topic), List.of(set))).all().get();
                return null;
            case "deleteRecords":
                RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("before").asLong());
                long low = admin.deleteRecords(Map.of(place, before)).lowWatermarks().get(place).get().lowWatermark();
                return JSON.valueToTree(low);
            case "offsets":
                return JSON.valueToTree(List.of(offset(place, OffsetSpec.earliest()), offset(place, OffsetSpec.latest())));
            case "offsetForTime":
                long found = offset(place, OffsetSpec.forTimestamp(request.get("timestamp").asLong()));
                return found < 0 ? null : JSON.valueToTree(found);
            case "produce":
                return produce(request, place);
            case "read":
                return read(request, place);
            case "transactionOpen":
                transactional.add(openTransactional(request.get("id").asText()));
                return JSON.valueToTree(transactional.size() - 1);
            case "transactionBegin":
                transactional(request).beginTransaction();
                return null;
            case "transactionSend":
                sendAll(transactional(request), place, request.get("values"));
                return null;
            case "transactionOffset":
                transactional(request).sendOffsetsToTransaction(
                    Map.of(place, new OffsetAndMetadata(request.get("offset").asLong())),
                    new ConsumerGroupMetadata(request.get("group").asText()));
                return null;
            case "transactionCommit":
                transactional(request).commitTransaction();
                return null;
            case "transactionAbort":
                transactional(request).abortTransaction();
                return null;
            case "transactionClose":
                transactional(request).close(Duration.ofSeconds(5));
                return null;
            default:
                throw new IllegalArgumentException("unknown verb " + request.get("verb"));
        }
    }

    private KafkaProducer<byte[], byte[]> openTransactional(String id) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    private KafkaProducer<byte[], byte[]> transactional(JsonNode request) {
        return transactional.get(request.get("number").asInt());
    }

    private static void sendAll(KafkaProducer<byte[], byte[]> producer, TopicPartition place, JsonNode values)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : values) {
            byte[] bytes = value.asText().getBytes(StandardCharsets.UTF_8);
            sent.add(producer.send(new ProducerRecord<>(place.topic(), place.partition(), null, bytes)));
        }
        for (Future<RecordMetadata> answer : sent) {
            answer.get();
        }
    }

    private static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private int partitionCount(String topic) throws Exception {
        try {
            TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            int led = 0;
            for (TopicPartitionInfo partition : found.partitions()) {
                led += partition.leader() == null ? 0 : 1;
            }
            return led;
        } catch (ExecutionException thrown) {
            if (thrown.getCause() instanceof UnknownTopicOrPartitionException) {
                return 0;
            }
            throw thrown;
        }
    }

    private JsonNode configs(String topic) throws Exception {
        ObjectNode all = JSON.createObjectNode();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource(topic))).all().get().get(resource(topic)).entries()) {
            all.put(entry.name(), entry.value());
        }
        return all;
    }

    private long offset(TopicPartition place, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset();
    }

    private JsonNode produce(JsonNode request, TopicPartition place) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("compression.type", request.get("codec").asText());
        settings.put("enable.idempotence", request.get("idempotent").asBoolean());
        settings.put("batch.size", 65536);
        settings.put("delivery.timeout.ms", 30000);
        settings.put("request.timeout.ms", 20000);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ArrayNode offsets = JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode row : request.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : row.get(3)) {
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                }
                sent.add(producer.send(new ProducerRecord<>(
                    place.topic(), place.partition(), row.get(2).asLong(), bytes(row.get(0)), bytes(row.get(1)), headers)));
            }
            for (Future<RecordMetadata> answer : sent) {
                offsets.add(answer.get().offset());
            }
        }
        return offsets;
    }

    private JsonNode read(JsonNode request, TopicPartition place) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "none");
        settings.put("isolation.level", request.path("committed").asBoolean() ? "read_committed" : "read_uncommitted");
        settings.put("enable.auto.commit", false);
        settings.put("fetch.max.wait.ms", 100);
        settings.put("max.poll.records", 10000);
        int count = request.get("count").asInt();
        long end = System.nanoTime() + request.get("withinMs").asLong() * 1_000_000L;
        ArrayNode rows = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(place));
            consumer.seek(place, request.get("start").asLong());
            while (rows.size() < count) {
                if (System.nanoTime() > end) {
                    throw new IllegalStateException("only " + rows.size() + " of " + count + " records came in time");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (rows.size() < count) {
                        rows.add(row(record));
                    }
                }
            }
        }
        return rows;
    }

    private static ArrayNode row(ConsumerRecord<byte[], byte[]> record) {
        ArrayNode headers = JSON.createArrayNode();
        for (Header header : record.headers()) {
            headers.add(JSON.createArrayNode().add(header.key()).add(header.value()));
        }
        return JSON.createArrayNode()
            .add(record.offset()).add(record.key()).add(record.value()).add(record.timestamp()).add(headers);
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }
}
