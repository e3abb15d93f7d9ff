import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Calls each method of Java's Admin: a line for each call, with tabs between its name, "OK" with a
 * value that does not depend on the cluster or the class of the error, and the error's message.
 * The last line names the methods of Admin that were not called.
 *
 * <p>Arguments: the bootstrap line, and the number of a stopped broker or -1.
 */
public class AdminCalls {
  private static final String TOPIC = "calls";
  private static final TopicPartition PARTITION = new TopicPartition(TOPIC, 0);

  private final String bootstrap;
  private final Admin admin;
  private final Set<String> called = new ConcurrentSkipListSet<>();
  private final List<Integer> nodes = new ArrayList<>();

  private AdminCalls(String bootstrap) throws Exception {
    this.bootstrap = bootstrap;
    Admin real = Admin.create(settings());
    InvocationHandler noting = (proxy, method, arguments) -> {
      called.add(method.getName());
      try {
        return method.invoke(real, arguments);
      } catch (InvocationTargetException problem) {
        throw problem.getCause();
      }
    };
    this.admin = (Admin) Proxy.newProxyInstance(
        AdminCalls.class.getClassLoader(), new Class<?>[] {Admin.class}, noting);
    for (Node node : admin.describeCluster().nodes().get()) {
      nodes.add(node.id());
    }
    Collections.sort(nodes);
  }

  private Map<String, Object> settings() {
    return new TreeMap<>(Map.of(
        "bootstrap.servers", bootstrap,
        "request.timeout.ms", 8000,
        "default.api.timeout.ms", 12000));
  }

  public static void main(String[] arguments) throws Exception {
    AdminCalls calls = new AdminCalls(arguments[0]);
    calls.topics();
    calls.configs();
    List<Thread> members = calls.membersJoin();
    calls.groups();
    calls.groupsWithMembers();
    calls.membersLeave(members);
    calls.groupsWithoutMembers();
    calls.replicas();
    calls.offsets();
    calls.transactions();
    calls.security();
    calls.cluster(Integer.parseInt(arguments[1]));
    calls.end();
    System.exit(0);
  }

  private static String oneLine(String text) {
    return String.valueOf(text).replaceAll("\\s+", " ");
  }

  private static void tell(String name, Callable<Object> call) {
    String outcome;
    String message = "";
    try {
      outcome = "OK " + oneLine(String.valueOf(call.call()));
    } catch (Throwable problem) {
      Throwable cause = problem;
      while (cause instanceof ExecutionException && cause.getCause() != null) {
        cause = cause.getCause();
      }
      outcome = cause.getClass().getSimpleName();
      message = oneLine(cause.getMessage());
    }
    System.out.println(name + "\t" + outcome + "\t" + message);
  }

  private void topics() throws Exception {
    short factor = (short) nodes.size();
    List<NewTopic> wanted =
        List.of(new NewTopic(TOPIC, 3, factor), new NewTopic("calls-2", 1, factor));
    tell("createTopics", () -> admin.createTopics(wanted).all().get());
    tell("createTopics again", () -> admin.createTopics(wanted).all().get());
    tell("createTopics validate", () -> {
      CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(true);
      return admin.createTopics(List.of(new NewTopic("calls-3", 2, factor)), options)
          .numPartitions("calls-3").get();
    });
    Map<String, Object> writing = settings();
    writing.put("key.serializer", StringSerializer.class);
    writing.put("value.serializer", StringSerializer.class);
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(writing)) {
      for (int number = 0; number < 30; number++) {
        producer.send(new ProducerRecord<>(TOPIC, number % 3, "k" + number, "v")).get();
      }
    }
    tell("listTopics", () -> admin.listTopics().names().get().containsAll(Set.of(TOPIC)));
    tell("describeTopics",
        () -> admin.describeTopics(List.of(TOPIC)).allTopicNames().get().get(TOPIC)
            .partitions().stream().map(each -> each.replicas().size()).toList());
    tell("describeTopics by id", () -> {
      Uuid id = admin.describeTopics(List.of(TOPIC)).allTopicNames().get().get(TOPIC).topicId();
      return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get()
          .get(id).name();
    });
    tell("describeTopics unknown",
        () -> admin.describeTopics(List.of("nope")).allTopicNames().get());
    tell("describeTopics unknown id",
        () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid())))
            .allTopicIds().get());
    tell("createPartitions",
        () -> admin.createPartitions(Map.of("calls-2", NewPartitions.increaseTo(2))).all().get());
    tell("createPartitions fewer",
        () -> admin.createPartitions(Map.of("calls-2", NewPartitions.increaseTo(1))).all().get());
    tell("deleteRecords",
        () -> admin.deleteRecords(Map.of(PARTITION, RecordsToDelete.beforeOffset(2)))
            .lowWatermarks().get(PARTITION).get().lowWatermark());
    tell("deleteTopics", () -> admin.deleteTopics(List.of("calls-2")).all().get());
    tell("deleteTopics unknown", () -> admin.deleteTopics(List.of("nope")).all().get());
    tell("deleteTopics unknown id",
        () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid())))
            .all().get());
  }

  private Object changed(ConfigResource.Type type, String name, String key, String value)
      throws Exception {
    AlterConfigOp.OpType operation =
        value == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET;
    AlterConfigOp change = new AlterConfigOp(new ConfigEntry(key, value), operation);
    return admin.incrementalAlterConfigs(
        Map.of(new ConfigResource(type, name), List.of(change))).all().get();
  }

  /** What is shown of a key, once it is: the change is on its way to the broker that is asked. */
  private Object shown(ConfigResource.Type type, String name, String key, String value)
      throws Exception {
    ConfigResource resource = new ConfigResource(type, name);
    String found = "";
    for (int attempt = 0; attempt < 40; attempt++) {
      ConfigEntry entry =
          admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key);
      found = entry == null ? "not shown"
          : entry.value() + " " + entry.source() + (entry.isReadOnly() ? " read only" : "");
      if (entry != null && value.equals(entry.value())) {
        break;
      }
      Thread.sleep(50);
    }
    return found;
  }

  private void configs() {
    String one = String.valueOf(nodes.get(0));
    String[][] wanted = {
      {"TOPIC", TOPIC, "message.timestamp.type", "LogAppendTime"},
      {"TOPIC", TOPIC, "retention.ms", "-2"},
      {"TOPIC", "nope", "retention.ms", "1000"},
      {"TOPIC", TOPIC, "no.such.key", "1"},
      {"BROKER", one, "log.retention.ms", "600000000"},
      {"BROKER", one, "log.cleaner.threads", "2"},
      {"BROKER", "", "log.cleaner.threads", "2"},
      {"BROKER", "", "message.max.bytes", "2000000"},
      {"BROKER", "77", "log.retention.ms", "600000000"},
      {"BROKER_LOGGER", one, "root", "ERROR"},
      {"GROUP", "calls-newer", "consumer.session.timeout.ms", "50000"},
      {"CLIENT_METRICS", "calls-metrics", "interval.ms", "10000"},
    };
    for (String[] each : wanted) {
      String name = String.join(" ", each).replace(" " + one + " ", " one ");
      ConfigResource.Type type = ConfigResource.Type.valueOf(each[0]);
      tell("incrementalAlterConfigs " + name, () -> changed(type, each[1], each[2], each[3]));
      if (type != ConfigResource.Type.BROKER_LOGGER && !each[1].equals("nope")) {
        tell("describeConfigs " + name, () -> shown(type, each[1], each[2], each[3]));
      }
      tell("incrementalAlterConfigs, delete " + name,
          () -> changed(type, each[1], each[2], null));
    }
    tell("listConfigResources", () -> {
      Set<ConfigResource.Type> types = new TreeSet<>();
      admin.listConfigResources().all().get().forEach(each -> types.add(each.type()));
      return types;
    });
    tell("listClientMetricsResources",
        () -> admin.listClientMetricsResources().all().get());
  }

  private final List<KafkaConsumer<String, String>> consumers = new ArrayList<>();
  private volatile boolean isOver;

  /** One classic member and one of the newer protocol, until both have read. */
  private List<Thread> membersJoin() throws Exception {
    List<Thread> threads = new ArrayList<>();
    Set<String> reading = new ConcurrentSkipListSet<>();
    for (String protocol : List.of("classic", "consumer")) {
      Map<String, Object> reads = settings();
      reads.put("key.deserializer", StringDeserializer.class);
      reads.put("value.deserializer", StringDeserializer.class);
      reads.put("auto.offset.reset", "earliest");
      reads.put("group.protocol", protocol);
      reads.put("group.id", protocol.equals("classic") ? "calls-classic" : "calls-newer");
      Thread thread = new Thread(() -> {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reads)) {
          consumer.subscribe(List.of(TOPIC));
          while (!isOver) {
            if (!consumer.poll(Duration.ofMillis(100)).isEmpty()) {
              consumer.commitSync();
              reading.add(protocol);
            }
          }
        }
      });
      thread.start();
      threads.add(thread);
    }
    for (int attempt = 0; attempt < 400 && reading.size() < 2; attempt++) {
      Thread.sleep(50);
    }
    tell("members", () -> reading);
    return threads;
  }

  private void membersLeave(List<Thread> members) throws Exception {
    isOver = true;
    for (Thread member : members) {
      member.join(10000);
    }
  }

  private void groups() {
    for (String group : List.of("calls-classic", "calls-newer", "nobody")) {
      tell("describeConsumerGroups " + group, () -> {
        ConsumerGroupDescription found =
            admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        return List.of(found.type(), found.groupState(), found.members().size(),
            found.partitionAssignor(), found.groupEpoch().isPresent(),
            found.targetAssignmentEpoch().isPresent());
      });
      tell("describeClassicGroups " + group, () -> {
        ClassicGroupDescription found =
            admin.describeClassicGroups(List.of(group)).all().get().get(group);
        return List.of(found.state(), found.protocol(), found.members().size());
      });
      tell("describeShareGroups " + group,
          () -> admin.describeShareGroups(List.of(group)).all().get());
      tell("describeStreamsGroups " + group,
          () -> admin.describeStreamsGroups(List.of(group)).all().get());
    }
    tell("listConsumerGroups", () -> admin.listConsumerGroups().all().get().stream()
        .map(each -> each.groupId() + " " + each.type().orElse(null)).sorted().toList());
    tell("listGroups", () -> listed(new ListGroupsOptions()));
    tell("listGroups of types", () -> listed(new ListGroupsOptions()
        .withTypes(Set.of(GroupType.CONSUMER, GroupType.SHARE, GroupType.STREAMS))));
  }

  private Object listed(ListGroupsOptions options) throws Exception {
    return admin.listGroups(options).all().get().stream()
        .map(each -> String.join(" ", each.groupId(), each.type().map(String::valueOf).orElse("-"),
            each.protocol(), each.groupState().map(String::valueOf).orElse("-")))
        .sorted().toList();
  }

  private void groupsWithMembers() {
    Map<TopicPartition, OffsetAndMetadata> offset = Map.of(PARTITION, new OffsetAndMetadata(3));
    for (String group : List.of("calls-classic", "calls-newer")) {
      tell("listConsumerGroupOffsets " + group,
          () -> admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().size());
      tell("alterConsumerGroupOffsets with members, " + group,
          () -> admin.alterConsumerGroupOffsets(group, offset).all().get());
      tell("deleteConsumerGroupOffsets with members, " + group,
          () -> admin.deleteConsumerGroupOffsets(group, Set.of(PARTITION)).all().get());
      tell("deleteConsumerGroups with members, " + group,
          () -> admin.deleteConsumerGroups(List.of(group)).all().get());
      tell("removeMembersFromConsumerGroup unknown, " + group, () -> {
        Collection<MemberToRemove> members = List.of(new MemberToRemove("nope"));
        return admin.removeMembersFromConsumerGroup(
            group, new RemoveMembersFromConsumerGroupOptions(members)).all().get();
      });
    }
    tell("removeMembersFromConsumerGroup all", () -> admin.removeMembersFromConsumerGroup(
        "calls-newer", new RemoveMembersFromConsumerGroupOptions()).all().get());
  }

  private void groupsWithoutMembers() {
    Map<TopicPartition, OffsetAndMetadata> offset = Map.of(PARTITION, new OffsetAndMetadata(3));
    for (String group : List.of("calls-classic", "calls-newer", "nobody")) {
      tell("alterConsumerGroupOffsets " + group,
          () -> admin.alterConsumerGroupOffsets(group, offset).all().get());
      tell("deleteConsumerGroupOffsets " + group,
          () -> admin.deleteConsumerGroupOffsets(group, Set.of(PARTITION)).all().get());
      tell("deleteConsumerGroups " + group,
          () -> admin.deleteConsumerGroups(List.of(group)).all().get());
      tell("deleteConsumerGroups again " + group,
          () -> admin.deleteConsumerGroups(List.of(group)).all().get());
    }
    tell("alterStreamsGroupOffsets",
        () -> admin.alterStreamsGroupOffsets("calls-streams", offset).all().get());
    tell("listStreamsGroupOffsets",
        () -> admin.listStreamsGroupOffsets(
            Map.of("calls-streams", new ListStreamsGroupOffsetsSpec())).all().get()
            .get("calls-streams").size());
    tell("deleteStreamsGroupOffsets",
        () -> admin.deleteStreamsGroupOffsets("calls-streams", Set.of(PARTITION)).all().get());
    tell("deleteStreamsGroups",
        () -> admin.deleteStreamsGroups(List.of("nobody")).all().get());
    tell("listShareGroupOffsets",
        () -> admin.listShareGroupOffsets(Map.of("nobody", new ListShareGroupOffsetsSpec()))
            .all().get());
    tell("alterShareGroupOffsets",
        () -> admin.alterShareGroupOffsets("calls-share", Map.of(PARTITION, 3L)).all().get());
    tell("deleteShareGroupOffsets",
        () -> admin.deleteShareGroupOffsets("nobody", Set.of(TOPIC)).all().get());
    tell("deleteShareGroups", () -> admin.deleteShareGroups(List.of("nobody")).all().get());
  }

  private Object reassigned(List<Integer> replicas, boolean mayChangeFactor) throws Exception {
    Optional<NewPartitionReassignment> target =
        Optional.ofNullable(replicas).map(NewPartitionReassignment::new);
    AlterPartitionReassignmentsOptions options = new AlterPartitionReassignmentsOptions()
        .allowReplicationFactorChange(mayChangeFactor);
    return admin.alterPartitionReassignments(Map.of(PARTITION, target), options).all().get();
  }

  private void replicas() {
    int first = nodes.get(0);
    TopicPartitionReplica replica = new TopicPartitionReplica(TOPIC, 0, first);
    tell("describeLogDirs",
        () -> admin.describeLogDirs(nodes).allDescriptions().get().size() == nodes.size());
    tell("describeReplicaLogDirs", () -> {
      String found = admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica)
          .getCurrentReplicaLogDir();
      return found != null;
    });
    tell("alterReplicaLogDirs to nowhere",
        () -> admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all().get());
    tell("alterReplicaLogDirs to where it is", () -> {
      String directory = admin.describeLogDirs(List.of(first)).allDescriptions().get()
          .get(first).keySet().iterator().next();
      return admin.alterReplicaLogDirs(Map.of(replica, directory)).all().get();
    });
    tell("alterReplicaLogDirs of no partition", () -> {
      TopicPartitionReplica none = new TopicPartitionReplica("nope", 0, first);
      String directory = admin.describeLogDirs(List.of(first)).allDescriptions().get()
          .get(first).keySet().iterator().next();
      return admin.alterReplicaLogDirs(Map.of(none, directory)).all().get();
    });
    for (ElectionType type : ElectionType.values()) {
      tell("electLeaders " + type,
          () -> admin.electLeaders(type, Set.of(PARTITION)).partitions().get().get(PARTITION)
              .map(problem -> problem.getClass().getSimpleName()));
    }
    tell("electLeaders of no partition",
        () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(new TopicPartition("nope", 0)))
            .partitions().get().values().iterator().next()
            .map(problem -> problem.getClass().getSimpleName()));
    List<Integer> reversed = new ArrayList<>(nodes);
    Collections.reverse(reversed);
    tell("alterPartitionReassignments", () -> reassigned(reversed, true));
    tell("listPartitionReassignments",
        () -> admin.listPartitionReassignments().reassignments().get().size() < 2);
    tell("alterPartitionReassignments, none to cancel", () -> {
      for (int attempt = 0; attempt < 100; attempt++) {
        if (admin.listPartitionReassignments().reassignments().get().isEmpty()) {
          break;
        }
        Thread.sleep(50);
      }
      return reassigned(null, true);
    });
    tell("alterPartitionReassignments to one", () -> reassigned(List.of(first), false));
    tell("alterPartitionReassignments to no broker", () -> reassigned(List.of(77), true));
    tell("alterPartitionReassignments to nothing", () -> reassigned(List.of(), true));
  }

  private void offsets() {
    List<OffsetSpec> specs = List.of(OffsetSpec.earliest(), OffsetSpec.latest(),
        OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(1), OffsetSpec.earliestLocal(),
        OffsetSpec.latestTiered(), OffsetSpec.earliestPendingUpload());
    for (OffsetSpec spec : specs) {
      tell("listOffsets " + spec.getClass().getSimpleName(),
          () -> admin.listOffsets(Map.of(PARTITION, spec)).partitionResult(PARTITION).get()
              .offset());
    }
    tell("listOffsets of no partition", () -> {
      TopicPartition none = new TopicPartition("nope", 0);
      return admin.listOffsets(Map.of(none, OffsetSpec.latest())).partitionResult(none).get();
    });
  }

  private void transactions() throws Exception {
    Map<String, Object> writing = settings();
    writing.put("key.serializer", StringSerializer.class);
    writing.put("value.serializer", StringSerializer.class);
    writing.put("transactional.id", "calls-tx");
    KafkaProducer<String, String> producer = new KafkaProducer<>(writing);
    producer.initTransactions();
    producer.beginTransaction();
    producer.send(new ProducerRecord<>(TOPIC, 0, "k", "v")).get();
    tell("describeProducers",
        () -> admin.describeProducers(List.of(PARTITION)).all().get().get(PARTITION)
            .activeProducers().stream()
            .map(each -> each.currentTransactionStartOffset().isPresent()).sorted().toList());
    tell("describeTransactions, open", () -> {
      TransactionDescription found = admin.describeTransactions(List.of("calls-tx")).all().get()
          .get("calls-tx");
      return List.of(found.state(), found.topicPartitions(), found.transactionTimeoutMs());
    });
    tell("describeTransactions unknown",
        () -> admin.describeTransactions(List.of("nope")).all().get());
    tell("listTransactions", () -> listed("calls-.*"));
    tell("listTransactions, no pattern", () -> listed("["));
    tell("abortTransaction of none",
        () -> admin.abortTransaction(new AbortTransactionSpec(PARTITION, 5, (short) 0, 0)).all()
            .get());
    tell("abortTransaction", () -> {
      ProducerState state = admin.describeProducers(List.of(PARTITION)).all().get()
          .get(PARTITION).activeProducers().stream()
          .filter(each -> each.currentTransactionStartOffset().isPresent()).findFirst().get();
      return admin.abortTransaction(new AbortTransactionSpec(PARTITION, state.producerId(),
          (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0))).all().get();
    });
    tell("forceTerminateTransaction",
        () -> admin.forceTerminateTransaction("calls-tx").result().get());
    tell("forceTerminateTransaction unknown",
        () -> admin.forceTerminateTransaction("nope").result().get());
    tell("fenceProducers", () -> admin.fenceProducers(List.of("calls-tx")).all().get());
    tell("commit of a fenced producer", () -> {
      producer.commitTransaction();
      return null;
    });
    producer.close(Duration.ofSeconds(1));
  }

  private Object listed(String pattern) throws Exception {
    ListTransactionsOptions options =
        new ListTransactionsOptions().filterOnTransactionalIdPattern(pattern);
    return admin.listTransactions(options).all().get().stream()
        .map(each -> each.transactionalId() + " " + each.state()).sorted().toList();
  }

  private void security() {
    AclBinding acl = new AclBinding(
        new ResourcePattern(ResourceType.TOPIC, TOPIC, PatternType.LITERAL),
        new AccessControlEntry("User:x", "*", AclOperation.READ, AclPermissionType.ALLOW));
    tell("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
    tell("createAcls", () -> admin.createAcls(List.of(acl)).all().get());
    tell("deleteAcls", () -> admin.deleteAcls(List.of(acl.toFilter())).all().get());
    ClientQuotaEntity client = new ClientQuotaEntity(Map.of("client-id", "calls-client"));
    for (Double rate : new Double[] {1e6, null}) {
      tell("alterClientQuotas " + rate, () -> admin.alterClientQuotas(List.of(
          new ClientQuotaAlteration(client, List.of(
              new ClientQuotaAlteration.Op("producer_byte_rate", rate))))).all().get());
      tell("describeClientQuotas " + rate, () -> {
        Map<ClientQuotaEntity, Map<String, Double>> found = Map.of();
        for (int attempt = 0; attempt < 100; attempt++) {
          found = admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
          if (found.isEmpty() == (rate == null)) {
            break;
          }
          Thread.sleep(50);
        }
        return found;
      });
    }
    tell("alterClientQuotas of no key", () -> admin.alterClientQuotas(List.of(
        new ClientQuotaAlteration(client, List.of(
            new ClientQuotaAlteration.Op("no.such.key", 1.0))))).all().get());
    ScramCredentialInfo scram = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
    tell("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(
        new UserScramCredentialUpsertion("calls-user", scram,
            "a password".getBytes(StandardCharsets.UTF_8)))).all().get());
    tell("describeUserScramCredentials",
        () -> admin.describeUserScramCredentials().all().get().values());
    tell("describeUserScramCredentials unknown",
        () -> admin.describeUserScramCredentials(List.of("nope")).all().get());
    tell("alterUserScramCredentials, delete", () -> admin.alterUserScramCredentials(List.of(
        new UserScramCredentialDeletion("calls-user", ScramMechanism.SCRAM_SHA_256))).all().get());
    tell("alterUserScramCredentials, delete again",
        () -> admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion(
            "calls-user", ScramMechanism.SCRAM_SHA_256))).all().get());
    tell("createDelegationToken", () -> admin.createDelegationToken().delegationToken().get());
    tell("renewDelegationToken",
        () -> admin.renewDelegationToken(new byte[3]).expiryTimestamp().get());
    tell("expireDelegationToken",
        () -> admin.expireDelegationToken(new byte[3]).expiryTimestamp().get());
    tell("describeDelegationToken",
        () -> admin.describeDelegationToken().delegationTokens().get());
  }

  private void cluster(int stopped) {
    tell("describeCluster", () -> {
      DescribeClusterOptions options =
          new DescribeClusterOptions().includeFencedBrokers(true).includeAuthorizedOperations(true);
      DescribeClusterResult found = admin.describeCluster(options);
      return List.of(new TreeSet<>(found.authorizedOperations().get()), found.nodes().get().stream()
          .map(each -> each.id() + " " + each.isFenced()).sorted().toList());
    });
    tell("describeFeatures", () -> admin.describeFeatures().featureMetadata().get()
        .finalizedFeatures().keySet().stream().sorted().toList());
    for (String feature : List.of("group.version", "kraft.version", "metadata.version")) {
      // KRaft's would be raised for good, and then the voters are answered by other rules.
      for (boolean isOnlyAsked : feature.startsWith("kraft")
          ? new boolean[] {true} : new boolean[] {true, false}) {
        FeatureUpdate update = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE);
        tell("updateFeatures " + feature + " " + isOnlyAsked,
            () -> admin.updateFeatures(Map.of(feature, update),
                new UpdateFeaturesOptions().validateOnly(isOnlyAsked)).all().get());
      }
    }
    tell("describeMetadataQuorum", () -> {
      QuorumInfo found = admin.describeMetadataQuorum().quorumInfo().get();
      return found.voters().stream().anyMatch(each -> each.replicaId() == found.leaderId());
    });
    Set<RaftVoterEndpoint> endpoints = Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1));
    tell("addRaftVoter", () -> admin.addRaftVoter(77, Uuid.ONE_UUID, endpoints).all().get());
    tell("addRaftVoter without endpoints",
        () -> admin.addRaftVoter(77, Uuid.ONE_UUID, Set.of()).all().get());
    tell("addRaftVoter of another cluster", () -> admin.addRaftVoter(77, Uuid.ONE_UUID, endpoints,
        new AddRaftVoterOptions().setClusterId(Optional.of("another"))).all().get());
    tell("removeRaftVoter", () -> admin.removeRaftVoter(77, Uuid.ONE_UUID).all().get());
    tell("unregisterBroker unknown", () -> admin.unregisterBroker(77).all().get());
    if (stopped >= 0) {
      tell("unregisterBroker stopped", () -> admin.unregisterBroker(stopped).all().get());
      tell("describeCluster then", () -> {
        DescribeClusterOptions options = new DescribeClusterOptions().includeFencedBrokers(true);
        List<Integer> found = List.of();
        for (int attempt = 0; attempt < 100; attempt++) {
          found = admin.describeCluster(options).nodes().get().stream().map(Node::id).sorted()
              .toList();
          if (!found.contains(stopped)) {
            break;
          }
          Thread.sleep(50);
        }
        return found;
      });
      tell("unregisterBroker again", () -> admin.unregisterBroker(stopped).all().get());
    }
    tell("unregisterController", () -> admin.unregisterController(77).all().get());
    tell("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(5)));
  }

  private void end() {
    tell("metrics", () -> !admin.metrics().isEmpty());
    tell("registerMetricForSubscription", () -> {
      admin.metrics().values().stream().findFirst().ifPresent(each -> {
        admin.registerMetricForSubscription((KafkaMetric) each);
        admin.unregisterMetricFromSubscription((KafkaMetric) each);
      });
      return null;
    });
    admin.close(Duration.ofSeconds(2));
    Set<String> left = Arrays.stream(Admin.class.getMethods())
        .filter(each -> !Modifier.isStatic(each.getModifiers()))
        .map(Method::getName).collect(Collectors.toCollection(TreeSet::new));
    left.removeAll(called);
    tell("methods not called", () -> left);
  }
}
