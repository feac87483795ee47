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
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnstableOffsetCommitException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Java client, told what to do over standard input: tests/clients/peer.py has the commands. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String END = new String("end of input");
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final String bootstrap;
    private KafkaConsumer<byte[], byte[]> member;
    private List<ObjectNode> inbox = new ArrayList<>();
    private KafkaProducer<byte[], byte[]> transactional;
    private Admin admin;

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver(arguments[0]);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        LinkedBlockingQueue<String> commands = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> {
            try (var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) commands.add(line);
            } catch (java.io.IOException ignored) {
                // The test has closed our input.
            }
            commands.add(END);
        });
        reader.setDaemon(true);
        reader.start();
        while (true) {
            String line = driver.member == null ? commands.take() : commands.poll();
            if (line == null) {
                driver.poll();
                continue;
            }
            if (line == END) break;
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", JSON.valueToTree(driver.obey(JSON.readTree(line))));
            } catch (Throwable thrown) {
                Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
                cause.printStackTrace();
                answer.put("error", cause.getClass().getSimpleName()).put("message", String.valueOf(cause.getMessage()));
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        driver.reset();
        System.exit(0);
    }

    private Object obey(JsonNode command) throws Exception {
        return switch (command.get("do").asText()) {
            case "hello" -> "kafka-clients " + AppInfoParser.getVersion();
            case "produce" -> produce(command);
            case "read" -> read(command);
            case "offset_at" -> offsetAt(command);
            case "join" -> join(command);
            case "assigned" -> member.assignment().stream().map(p -> List.of(p.topic(), p.partition())).toList();
            case "taken" -> taken();
            case "commit" -> done(() -> member.commitSync());
            case "leave" -> done(this::leave);
            case "set_offsets" -> setOffsets(command);
            case "committed" -> committed(command);
            case "txn_open" -> txnOpen(command);
            case "txn_begin" -> done(() -> transactional.beginTransaction());
            case "txn_send" -> send(transactional, command);
            case "txn_offsets" -> txnOffsets(command);
            case "txn_commit" -> done(() -> transactional.commitTransaction());
            case "txn_abort" -> done(() -> transactional.abortTransaction());
            case "txn_close" -> done(this::txnClose);
            case "create_topic" -> createTopic(command);
            case "partitions" -> admin().describeTopics(List.of(topic(command))).allTopicNames().get()
                .get(topic(command)).partitions().size();
            case "add_partitions" -> get(admin().createPartitions(
                Map.of(topic(command), NewPartitions.increaseTo(command.get("total").asInt()))).all());
            case "config" -> config(command);
            case "set_config" -> setConfig(command);
            case "delete_records" -> deleteRecords(command);
            case "delete_topic" -> get(admin().deleteTopics(List.of(topic(command))).all());
            case "topics" -> admin().listTopics().names().get();
            case "groups" -> groups();
            case "group" -> group(command);
            case "delete_group" -> get(admin().deleteConsumerGroups(List.of(command.get("group").asText())).all());
            case "reset" -> done(this::reset);
            default -> throw new UnsupportedOperationException(command.get("do").asText());
        };
    }

    // -- producing and reading ---------------------------------------------------------------------------

    private Object produce(JsonNode command) throws Exception {
        Properties config = common();
        config.put("acks", command.get("acks").asText());
        config.put("compression.type", command.get("codec").asText());
        config.put("enable.idempotence", command.get("idempotent").asBoolean());
        config.put("linger.ms", 20);
        config.put("batch.size", 200_000);
        config.put("delivery.timeout.ms", 30_000);
        config.put("request.timeout.ms", 20_000);
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            return send(producer, command);
        }
    }

    private static List<List<Long>> send(KafkaProducer<byte[], byte[]> producer, JsonNode command) throws Exception {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (JsonNode record : command.get("records")) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : record.get("h")) headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            futures.add(producer.send(new ProducerRecord<>(topic(command), record.get("p").asInt(),
                record.get("t").asLong(), bytes(record.get("k")), bytes(record.get("v")), headers)));
        }
        List<List<Long>> placed = new ArrayList<>();
        for (var future : futures) {
            RecordMetadata sent = future.get();
            placed.add(List.of((long) sent.partition(), sent.offset()));
        }
        return placed;
    }

    private Object read(JsonNode command) {
        Properties config = common();
        config.put("isolation.level", command.get("isolation").asText());
        config.put("auto.offset.reset", "none");
        config.put("enable.auto.commit", false);
        Map<Integer, Long> left = new HashMap<>();
        command.get("last").fields().forEachRemaining(e -> left.put(Integer.valueOf(e.getKey()), e.getValue().asLong()));
        List<ObjectNode> found = new ArrayList<>();
        long quiet = command.get("quiet_ms").asLong() * 1_000_000;
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Map<TopicPartition, Long> first = new HashMap<>();
            command.get("first").fields().forEachRemaining(e ->
                first.put(new TopicPartition(topic(command), Integer.parseInt(e.getKey())), e.getValue().asLong()));
            consumer.assign(first.keySet());
            first.forEach(consumer::seek);
            long since = System.nanoTime();
            while (!left.isEmpty() && System.nanoTime() - since < quiet) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    since = System.nanoTime();
                    Long last = left.get(record.partition());
                    if (last == null) continue;
                    if (record.offset() >= last) left.remove(record.partition());
                    if (record.offset() <= last) found.add(json(record));
                }
            }
        }
        return found;
    }

    private Object offsetAt(JsonNode command) throws Exception {
        var where = new TopicPartition(topic(command), command.get("partition").asInt());
        long time = command.get("timestamp").asLong();
        OffsetSpec spec = time == -1 ? OffsetSpec.latest() : time == -2 ? OffsetSpec.earliest() : OffsetSpec.forTimestamp(time);
        return admin().listOffsets(Map.of(where, spec)).partitionResult(where).get().offset();
    }

    // -- groups ------------------------------------------------------------------------------------------

    private Object join(JsonNode command) {
        Properties config = common();
        String assignor = command.get("assignor").asText();
        config.put("client.id", command.get("client_id").asText());
        config.put("group.id", command.get("group").asText());
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", command.get("isolation").asText());
        if (command.get("protocol").asText().equals("consumer")) {
            config.put("group.protocol", "consumer");
            if (!assignor.isEmpty()) config.put("group.remote.assignor", assignor);
        } else {
            config.put("session.timeout.ms", command.get("session_ms").asInt());
            config.put("heartbeat.interval.ms", 500);
            config.put("partition.assignment.strategy", ASSIGNORS.get(assignor.isEmpty() ? "range" : assignor));
        }
        if (!command.get("instance").isNull()) config.put("group.instance.id", command.get("instance").asText());
        member = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<String> topics = new ArrayList<>();
        command.get("topics").forEach(topic -> topics.add(topic.asText()));
        member.subscribe(topics);
        return null;
    }

    private void poll() {
        for (var record : member.poll(Duration.ofMillis(50))) inbox.add(json(record));
    }

    private Object taken() {
        List<ObjectNode> taken = inbox;
        inbox = new ArrayList<>();
        return taken;
    }

    private void leave() {
        if (member != null) member.close();
        member = null;
    }

    private Object setOffsets(JsonNode command) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
        for (JsonNode one : command.get("offsets")) {
            wanted.put(partition(one), new OffsetAndMetadata(one.get(2).asLong(), one.get(3).asText()));
        }
        return get(admin().alterConsumerGroupOffsets(command.get("group").asText(), wanted).all());
    }

    private Object committed(JsonNode command) throws Exception {
        String group = command.get("group").asText();
        List<TopicPartition> wanted = new ArrayList<>();
        command.get("partitions").forEach(one -> wanted.add(partition(one)));
        var specs = Map.of(group, new ListConsumerGroupOffsetsSpec().topicPartitions(wanted));
        var options = new ListConsumerGroupOffsetsOptions().requireStable(true);
        Map<TopicPartition, OffsetAndMetadata> found = null;
        while (found == null) {
            try {
                found = admin().listConsumerGroupOffsets(specs, options).partitionsToOffsetAndMetadata(group).get();
            } catch (ExecutionException failed) {
                if (!(failed.getCause() instanceof UnstableOffsetCommitException)) throw failed;
                TimeUnit.MILLISECONDS.sleep(50); // a transaction that holds offsets of the group has not ended yet
            }
        }
        ArrayNode offsets = JSON.createArrayNode();
        for (TopicPartition where : wanted) {
            OffsetAndMetadata one = found.get(where);
            ArrayNode entry = offsets.addArray().add(where.topic()).add(where.partition());
            if (one == null) entry.addNull().add("");
            else entry.add(one.offset()).add(one.metadata());
        }
        return offsets;
    }

    // -- transactions ------------------------------------------------------------------------------------

    private Object txnOpen(JsonNode command) {
        Properties config = common();
        config.put("transactional.id", command.get("id").asText());
        config.put("transaction.timeout.ms", command.get("timeout_ms").asInt());
        config.put("compression.type", command.get("codec").asText());
        config.put("linger.ms", 20);
        transactional = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        transactional.initTransactions();
        return null;
    }

    private Object txnOffsets(JsonNode command) {
        Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
        for (JsonNode one : command.get("offsets")) wanted.put(partition(one), new OffsetAndMetadata(one.get(2).asLong()));
        var metadata = member != null ? member.groupMetadata() : new ConsumerGroupMetadata(command.get("group").asText());
        transactional.sendOffsetsToTransaction(wanted, metadata);
        return null;
    }

    private void txnClose() {
        if (transactional != null) transactional.close(Duration.ofSeconds(2));
        transactional = null;
    }

    // -- administration ----------------------------------------------------------------------------------

    private Admin admin() {
        if (admin == null) admin = Admin.create(common());
        return admin;
    }

    private Object createTopic(JsonNode command) throws Exception {
        Map<String, String> config = new HashMap<>();
        command.get("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
        var topic = new NewTopic(topic(command), Optional.of(command.get("partitions").asInt()), Optional.of((short) 1));
        return get(admin().createTopics(List.of(topic.configs(config))).all());
    }

    private Object config(JsonNode command) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(command));
        Map<String, String> values = new HashMap<>();
        for (ConfigEntry entry : admin().describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            values.put(entry.name(), entry.value());
        }
        return values;
    }

    private Object setConfig(JsonNode command) throws Exception {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        command.get("config").fields().forEachRemaining(e ->
            changes.add(new AlterConfigOp(new ConfigEntry(e.getKey(), e.getValue().asText()), AlterConfigOp.OpType.SET)));
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(command));
        return get(admin().incrementalAlterConfigs(Map.of(resource, changes)).all());
    }

    private Object deleteRecords(JsonNode command) throws Exception {
        Map<TopicPartition, RecordsToDelete> before = new HashMap<>();
        command.get("before").fields().forEachRemaining(e -> before.put(
            new TopicPartition(topic(command), Integer.parseInt(e.getKey())),
            RecordsToDelete.beforeOffset(e.getValue().asLong())));
        Map<Integer, Long> starts = new HashMap<>();
        for (var entry : admin().deleteRecords(before).lowWatermarks().entrySet()) {
            starts.put(entry.getKey().partition(), entry.getValue().get().lowWatermark());
        }
        return starts;
    }

    @SuppressWarnings({"deprecation", "removal"}) // the newer name of it is not in every version of the client we run
    private Object groups() throws Exception {
        return admin().listConsumerGroups().all().get().stream().map(group -> group.groupId()).toList();
    }

    @SuppressWarnings({"deprecation", "removal"}) // as above
    private Object group(JsonNode command) throws Exception {
        String group = command.get("group").asText();
        ConsumerGroupDescription described = admin().describeConsumerGroups(List.of(group)).all().get().get(group);
        var members = new TreeSet<String>();
        described.members().forEach(one -> members.add(one.clientId()));
        return Map.of("state", described.state().name(), "members", members);
    }

    private void reset() {
        try {
            leave();
        } finally {
            inbox = new ArrayList<>();
            txnClose();
        }
    }

    // -- small things ------------------------------------------------------------------------------------

    private Properties common() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        return config;
    }

    private interface Action {
        void run() throws Exception;
    }

    private static Object done(Action action) throws Exception {
        action.run();
        return null;
    }

    private static Object get(Future<?> future) throws Exception {
        future.get(30, TimeUnit.SECONDS);
        return null;
    }

    private static String topic(JsonNode command) {
        return command.get("topic").asText();
    }

    private static TopicPartition partition(JsonNode one) {
        return new TopicPartition(one.get(0).asText(), one.get(1).asInt());
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private static ObjectNode json(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode fields = JSON.createObjectNode();
        fields.put("topic", record.topic()).put("p", record.partition()).put("o", record.offset());
        fields.put("t", record.timestamp()).put("k", text(record.key())).put("v", text(record.value()));
        ArrayNode headers = fields.putArray("h");
        for (Header header : record.headers()) headers.addArray().add(header.key()).add(text(header.value()));
        return fields;
    }

}
