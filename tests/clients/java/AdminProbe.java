import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Goes once through Java's Admin interface, and prints what each step gave, as JSON by the step's name: a
 * value, or the class and words of the error. Arguments: the broker's address, a name that nobody else uses.
 */
public final class AdminProbe {
    private final Map<String, Object> seen = new LinkedHashMap<>();
    private final String bootstrap;
    private final String name;
    private final Admin admin;
    private final int node;

    private AdminProbe(String bootstrap, String name) throws Exception {
        this.bootstrap = bootstrap;
        this.name = name;
        this.admin = Admin.create(config());
        this.node = admin.describeCluster().nodes().get().iterator().next().id();
    }

    public static void main(String[] arguments) throws Exception {
        AdminProbe probe = new AdminProbe(arguments[0], arguments[1]);
        probe.topics();
        probe.configs();
        probe.records();
        probe.groups();
        probe.transactions();
        probe.cluster();
        System.out.println(new ObjectMapper().writeValueAsString(probe.seen));
        System.exit(0);
    }

    private Properties config() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("default.api.timeout.ms", 10_000);
        config.put("request.timeout.ms", 8_000);
        return config;
    }

    private void step(String step, Callable<Object> action) {
        Object outcome;
        try {
            outcome = action.call();
        } catch (Exception thrown) {
            Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            outcome = Map.of("error", cause.getClass().getSimpleName());
            System.err.println(step + ": " + cause);
        }
        seen.put(step, outcome);
    }

    private static Object done(KafkaFuture<?> future) throws Exception {
        future.get();
        return "done";
    }

    // -- topics ------------------------------------------------------------------------------------------

    private void topics() throws Exception {
        var made = admin.createTopics(List.of(
            new NewTopic(name, 2, (short) 1).configs(Map.of("retention.ms", "5000000")),
            new NewTopic(name + "-assigned", Map.of(0, List.of(node), 1, List.of(node))),
            new NewTopic(name + "-default", Optional.empty(), Optional.empty())));
        step("create topics", () -> done(made.all()));
        step("created partitions", () -> made.numPartitions(name).get());
        step("created replication", () -> made.replicationFactor(name).get());
        step("created config", () -> made.config(name).get().get("retention.ms").value());
        step("created config default", () -> made.config(name).get().get("segment.bytes").source().name());
        Thread.sleep(500);
        Uuid id = made.topicId(name).get();
        step("assign to an unknown broker", () -> done(admin.createTopics(
            List.of(new NewTopic(name + "-x", Map.of(0, List.of(99))))).all()));
        step("assign partitions with a gap", () -> done(admin.createTopics(
            List.of(new NewTopic(name + "-y", Map.of(0, List.of(node), 2, List.of(node))))).all()));
        step("describe by id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
            .allTopicIds().get().get(id).name().equals(name));
        step("describe an unknown id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(7, 7))))
            .allTopicIds().get());
        step("describe an unknown topic", () -> admin.describeTopics(List.of("no-such-topic")).allTopicNames().get());
        step("describe", () -> admin.describeTopics(List.of(name), new DescribeTopicsOptions().includeAuthorizedOperations(true))
            .allTopicNames().get().get(name).authorizedOperations().stream().map(Enum::name).sorted().toList());
        step("list by pages", () -> admin.describeTopics(List.of(name, name + "-assigned", name + "-default"),
            new DescribeTopicsOptions().partitionSizeLimitPerResponse(1)).allTopicNames().get().values().stream()
            .map(topic -> topic.partitions().size()).sorted().toList());
        step("add partitions with an assignment", () -> done(admin.createPartitions(
            Map.of(name + "-assigned", NewPartitions.increaseTo(3, List.of(List.of(node))))).all()));
        step("add partitions with a wrong assignment", () -> done(admin.createPartitions(
            Map.of(name + "-assigned", NewPartitions.increaseTo(4, List.of(List.of(node), List.of(node))))).all()));
        step("delete by id", () -> {
            Uuid other = made.topicId(name + "-default").get();
            return done(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(other))).all());
        });
        step("delete an unknown id", () -> done(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(new Uuid(7, 7)))).all()));
    }

    // -- configs -----------------------------------------------------------------------------------------

    private void configs() throws Exception {
        var topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        step("config types", () -> admin.describeConfigs(List.of(topic), options).all().get().get(topic).entries().stream()
            .filter(e -> Set.of("retention.ms", "cleanup.policy", "preallocate", "min.cleanable.dirty.ratio", "compression.type",
                "segment.bytes").contains(e.name()))
            .collect(Collectors.toMap(ConfigEntry::name, e -> e.type().name(), (a, b) -> a, TreeMap::new)));
        step("config documentation", () -> admin.describeConfigs(List.of(topic), options).all().get().get(topic).entries().stream()
            .allMatch(e -> e.documentation() != null && !e.documentation().isEmpty()));
        step("config synonyms", () -> admin.describeConfigs(List.of(topic), options).all().get().get(topic)
            .get("max.message.bytes").synonyms().stream().map(s -> s.source() + " " + s.name() + " " + s.value()).toList());
        step("null config", () -> done(admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("segment.bytes", null), AlterConfigOp.OpType.SET)))).all()));
        step("a config twice", () -> done(admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("segment.ms", "5000"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("segment.ms", "6000"), AlterConfigOp.OpType.SET)))).all()));
        var group = new ConfigResource(ConfigResource.Type.GROUP, name + "-group");
        step("group configs", () -> admin.describeConfigs(List.of(group)).all().get().get(group).entries().stream()
            .map(ConfigEntry::name).filter(n -> n.startsWith("consumer.")).sorted().toList());
    }

    // -- records and offsets -----------------------------------------------------------------------------

    private void records() throws Exception {
        Properties config = config();
        config.remove("default.api.timeout.ms");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(name, 0, System.currentTimeMillis() - 1000 + i, "k" + i, "v" + i)).get();
            }
        }
        var where = new TopicPartition(name, 0);
        Map<String, OffsetSpec> specs = new LinkedHashMap<>();
        specs.put("earliest", OffsetSpec.earliest());
        specs.put("latest", OffsetSpec.latest());
        specs.put("max timestamp", OffsetSpec.maxTimestamp());
        specs.put("earliest local", OffsetSpec.earliestLocal());
        specs.put("latest tiered", OffsetSpec.latestTiered());
        specs.put("far future", OffsetSpec.forTimestamp(System.currentTimeMillis() + 1_000_000));
        specs.forEach((what, spec) -> step("offset " + what, () ->
            admin.listOffsets(Map.of(where, spec)).partitionResult(where).get().offset()));
        step("offset committed", () -> admin.listOffsets(Map.of(where, OffsetSpec.latest()),
            new ListOffsetsOptions(IsolationLevel.READ_COMMITTED)).partitionResult(where).get().offset());
        step("leader epoch", () -> admin.listOffsets(Map.of(where, OffsetSpec.latest())).partitionResult(where).get().leaderEpoch().orElse(-1));
        step("delete records", () -> admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(3)))
            .lowWatermarks().get(where).get().lowWatermark());
        step("offset after deletion", () -> admin.listOffsets(Map.of(where, OffsetSpec.earliest())).partitionResult(where).get().offset());
        step("delete too many records", () -> admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(99)))
            .lowWatermarks().get(where).get().lowWatermark());
        step("log directories", () -> admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values().stream()
            .map(dir -> dir.replicaInfos().get(where).size() > 500 && dir.totalBytes().getAsLong() > dir.usableBytes().getAsLong()).toList());
        step("replica directories", () -> admin.describeReplicaLogDirs(List.of(
            new org.apache.kafka.common.TopicPartitionReplica(name, 0, node))).all().get().values().stream()
            .map(info -> info.getCurrentReplicaOffsetLag() + " " + (info.getCurrentReplicaLogDir() != null)).toList());
    }

    // -- groups ------------------------------------------------------------------------------------------

    private void groups() throws Exception {
        String group = name + "-group";
        var where = new TopicPartition(name, 0);
        step("alter offsets", () -> done(admin.alterConsumerGroupOffsets(group, Map.of(where, new OffsetAndMetadata(4, Optional.of(0), "x"))).all()));
        step("offsets", () -> admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(where).toString());
        step("offsets of several groups", () -> new TreeMap<>(admin.listConsumerGroupOffsets(Map.of(
            group, new ListConsumerGroupOffsetsSpec(), "no-such-group", new ListConsumerGroupOffsetsSpec())).all().get())
            .values().stream().map(Map::size).sorted().toList());
        step("delete offsets", () -> done(admin.deleteConsumerGroupOffsets(group, Set.of(where)).all()));
        step("delete offsets of an unknown group", () -> done(admin.deleteConsumerGroupOffsets("no-such-group", Set.of(where)).all()));
        step("describe an unknown group", () -> admin.describeConsumerGroups(List.of("no-such-group")).all().get());
        step("describe an unknown classic group", () -> admin.describeClassicGroups(List.of("no-such-group")).all().get());
        Properties config = config();
        config.put("group.id", group);
        config.put("group.instance.id", "an-instance");
        config.put("client.id", "a-client");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(name));
        for (int i = 0; i < 100 && consumer.assignment().isEmpty(); i++) consumer.poll(Duration.ofMillis(100));
        step("describe a group", () -> {
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            var member = described.members().iterator().next();
            return List.of(described.groupState().name(), described.type().name(), described.partitionAssignor(), member.clientId(),
                member.groupInstanceId().orElse(""), member.host(), member.assignment().topicPartitions().size());
        });
        step("describe a classic group", () -> {
            var described = admin.describeClassicGroups(List.of(group)).all().get().get(group);
            return List.of(described.protocol(), described.protocolData(), described.members().size(), described.state().name());
        });
        step("list groups", () -> admin.listGroups(ListGroupsOptions.forConsumerGroups().withTypes(Set.of(org.apache.kafka.common.GroupType.CLASSIC)))
            .all().get().stream().filter(g -> g.groupId().equals(group)).map(g ->
                g.type() + " " + g.protocol() + " " + g.groupState().map(Enum::name).orElse("")).toList());
        step("delete offsets in use", () -> done(admin.deleteConsumerGroupOffsets(group, Set.of(where)).all()));
        step("delete a group in use", () -> done(admin.deleteConsumerGroups(List.of(group)).all()));
        step("alter offsets in use", () -> done(admin.alterConsumerGroupOffsets(group, Map.of(where, new OffsetAndMetadata(1))).all()));
        step("remove an unknown member", () -> done(admin.removeMembersFromConsumerGroup(group,
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("another")))).all()));
        step("remove members", () -> done(admin.removeMembersFromConsumerGroup(group,
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("an-instance")))).all()));
        step("a group without members", () -> admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState().name());
        consumer.close(org.apache.kafka.clients.consumer.CloseOptions.timeout(Duration.ZERO));
        step("delete a group", () -> done(admin.deleteConsumerGroups(List.of(group)).all()));
        step("delete a group again", () -> done(admin.deleteConsumerGroups(List.of(group)).all()));
    }

    // -- transactions ------------------------------------------------------------------------------------

    private void transactions() throws Exception {
        var where = new TopicPartition(name, 1);
        Properties config = config();
        config.remove("default.api.timeout.ms");
        config.put("transactional.id", name);
        config.put("transaction.timeout.ms", 30_000);
        var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(name, 1, "k", "v")).get();
        step("list transactions", () -> admin.listTransactions().all().get().stream()
            .filter(t -> t.transactionalId().equals(name)).map(t -> t.state().name()).toList());
        step("list transactions by state", () -> admin.listTransactions(new ListTransactionsOptions()
            .filterStates(Set.of(TransactionState.COMPLETE_COMMIT))).all().get().stream()
            .filter(t -> t.transactionalId().equals(name)).count());
        step("list transactions by pattern", () -> admin.listTransactions(new ListTransactionsOptions()
            .filterOnTransactionalIdPattern(name)).all().get().size());
        step("describe a transaction", () -> {
            var described = admin.describeTransactions(List.of(name)).all().get().get(name);
            return List.of(described.state().name(), described.transactionTimeoutMs(), described.topicPartitions().size(),
                described.transactionStartTimeMs().isPresent(), described.coordinatorId() == node);
        });
        step("describe an unknown transaction", () -> admin.describeTransactions(List.of("no-such-id")).all().get());
        step("describe producers", () -> {
            var state = admin.describeProducers(List.of(where)).partitionResult(where).get().activeProducers().get(0);
            return List.of(state.lastSequence(), state.currentTransactionStartOffset().orElse(-1));
        });
        step("fence", () -> done(admin.fenceProducers(List.of(name)).all()));
        step("fenced", () -> {
            producer.commitTransaction();
            return "committed";
        });
        producer.close(Duration.ZERO);
        step("after the fence", () -> {
            var state = TransactionState.ONGOING;
            for (int i = 0; i < 50 && (state == TransactionState.ONGOING || state == TransactionState.PREPARE_ABORT); i++) {
                state = admin.describeTransactions(List.of(name)).all().get().get(name).state();
                Thread.sleep(50);
            }
            return state.name();
        });
    }

    // -- the cluster -------------------------------------------------------------------------------------

    private void cluster() throws Exception {
        step("cluster", () -> {
            var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            return List.of(cluster.nodes().get().size(), cluster.controller().get().id() == node, cluster.authorizedOperations().get().size());
        });
        step("list internal", () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get().stream()
            .filter(TopicListing::isInternal).map(TopicListing::name).sorted()
            .filter(Set.of("__consumer_offsets", "__transaction_state")::contains).toList());
        step("features", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().entrySet().stream()
            .filter(e -> Set.of("transaction.version", "group.version").contains(e.getKey()))
            .collect(Collectors.toMap(Map.Entry::getKey, e -> e.getValue().maxVersionLevel(), (a, b) -> a, TreeMap::new)));
        step("elect", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(new TopicPartition(name, 0))).partitions().get()
            .get(new TopicPartition(name, 0)).map(e -> e.getClass().getSimpleName()).orElse("elected"));
        step("reassignments", () -> admin.listPartitionReassignments().reassignments().get().size());
        step("cancel a reassignment", () -> done(admin.alterPartitionReassignments(Map.of(
            new TopicPartition(name, 0), Optional.empty())).all()));
        step("reassign to an unknown broker", () -> done(admin.alterPartitionReassignments(Map.of(
            new TopicPartition(name, 0), Optional.of(new NewPartitionReassignment(List.of(9))))).all()));
        step("reassign to where it is", () -> done(admin.alterPartitionReassignments(Map.of(
            new TopicPartition(name, 0), Optional.of(new NewPartitionReassignment(List.of(node))))).all()));
        step("acls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        step("delegation token", () -> admin.createDelegationToken().delegationToken().get());
        step("delegation tokens", () -> admin.describeDelegationToken().delegationTokens().get());
        var user = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, name));
        step("quotas of nobody", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().keySet().contains(user));
        step("scram of nobody", () -> admin.describeUserScramCredentials(List.of(name)).description(name).get());
        step("config resources", () -> admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC), new ListConfigResourcesOptions())
            .all().get().stream().anyMatch(r -> r.name().equals(name)));
        step("client metrics", () -> admin.listConfigResources(Set.of(ConfigResource.Type.CLIENT_METRICS), new ListConfigResourcesOptions()).all().get().size());
        step("delete topics", () -> done(admin.deleteTopics(List.of(name, name + "-assigned")).all()));
    }
}
