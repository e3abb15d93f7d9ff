import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.ConfigResource.Type;

/**
 * Asks a cluster what it says of itself, by Java's Admin: a line for each call, its name, a tab,
 * and "OK" with a value that does not depend on the cluster, or the class of the error.
 *
 * <p>Arguments: the bootstrap line.
 */
public class ClusterFacts {
  private static final String TOPIC = "facts";
  private static final int LOOKS = 200;
  private static final long LOOK_MS = 50;

  private final Admin admin;
  private final int node;

  private ClusterFacts(Admin admin) throws Exception {
    this.admin = admin;
    this.node = admin.describeCluster().nodes().get().iterator().next().id();
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, Object> settings = Map.of(
        "bootstrap.servers", arguments[0],
        "request.timeout.ms", 8000,
        "default.api.timeout.ms", 10000);
    try (Admin admin = Admin.create(settings)) {
      ClusterFacts facts = new ClusterFacts(admin);
      admin.createTopics(List.of(new NewTopic(TOPIC, 1, (short) 1))).all().get();
      facts.features();
      facts.configs();
      facts.changes();
      facts.replicas();
      facts.fixed();
    }
  }

  private static void tell(String name, Callable<Object> call) {
    String outcome;
    try {
      outcome = "OK " + call.call();
    } catch (Exception problem) {
      Throwable cause = problem;
      while (cause instanceof ExecutionException && cause.getCause() != null) {
        cause = cause.getCause();
      }
      outcome = cause.getClass().getSimpleName();
    }
    System.out.println(name + "\t" + outcome);
  }

  private Object updated(String feature, int level, UpgradeType type, boolean validateOnly)
      throws Exception {
    FeatureUpdate update = new FeatureUpdate((short) level, type);
    UpdateFeaturesOptions options = new UpdateFeaturesOptions().validateOnly(validateOnly);
    return admin.updateFeatures(Map.of(feature, update), options).all().get();
  }

  private Object levels() throws Exception {
    FeatureMetadata known = admin.describeFeatures().featureMetadata().get();
    Map<String, String> levels = new TreeMap<>();
    for (String name : List.of("group.version", "metadata.version", "transaction.version")) {
      String finalized = String.valueOf(known.finalizedFeatures().get(name));
      levels.put(name, known.supportedFeatures().get(name) + " " + finalized);
    }
    return levels;
  }

  /** The levels, as soon as the broker has heard of the group.version that was set. */
  private Object levelsOnce(Short expected) throws Exception {
    for (int look = 0; look < LOOKS; look++) {
      FinalizedVersionRange group =
          admin.describeFeatures().featureMetadata().get().finalizedFeatures()
              .get("group.version");
      if (Objects.equals(group == null ? null : group.maxVersionLevel(), expected)) {
        break;
      }
      Thread.sleep(LOOK_MS);
    }
    return levels();
  }

  private void features() {
    tell("features", this::levels);
    for (boolean validateOnly : new boolean[] {true, false}) {
      tell("lower " + validateOnly,
          () -> updated("group.version", 0, UpgradeType.SAFE_DOWNGRADE, validateOnly));
    }
    tell("features, lower", () -> levelsOnce(null));
    tell("raise as a downgrade",
        () -> updated("group.version", 1, UpgradeType.UNSAFE_DOWNGRADE, false));
    tell("raise", () -> updated("group.version", 1, UpgradeType.UPGRADE, false));
    tell("lower as an upgrade",
        () -> updated("transaction.version", 0, UpgradeType.UPGRADE, false));
    tell("too high", () -> updated("transaction.version", 9, UpgradeType.UPGRADE, false));
    tell("unknown", () -> updated("no.such.feature", 1, UpgradeType.UPGRADE, false));
    tell("features, again", () -> levelsOnce((short) 1));
  }

  private String nameOf(Type type) {
    return switch (type) {
      case TOPIC -> TOPIC;
      case BROKER, BROKER_LOGGER -> "" + node;
      default -> "facts-resource";
    };
  }

  private void configs() {
    for (Type type : Type.values()) {
      ConfigResource resource = new ConfigResource(type, nameOf(type));
      tell("describe " + type,
          () -> !admin.describeConfigs(List.of(resource)).all().get().get(resource)
              .entries().isEmpty());
      tell("list " + type, () -> {
        Collection<ConfigResource> found =
            admin.listConfigResources(Set.of(type), new ListConfigResourcesOptions()).all().get();
        return found.contains(resource);
      });
    }
    tell("list all", () -> typesOnce(0));
  }

  /** The types of resources with configurations, as soon as the broker has heard of so many. */
  private Object typesOnce(int expected) throws Exception {
    Set<Type> types = new TreeSet<>();
    for (int look = 0; look < LOOKS; look++) {
      admin.listConfigResources().all().get().forEach(each -> types.add(each.type()));
      if (types.size() >= expected) {
        break;
      }
      Thread.sleep(LOOK_MS);
    }
    return types;
  }

  private Object changed(ConfigResource resource, String key, String value) throws Exception {
    AlterConfigOp.OpType type =
        value == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET;
    List<AlterConfigOp> changes = List.of(new AlterConfigOp(new ConfigEntry(key, value), type));
    return admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
  }

  private void changes() {
    String[][] wanted = {
      {"TOPIC", TOPIC, "leader.replication.throttled.replicas", "0:1"},
      {"TOPIC", TOPIC, "follower.replication.throttled.replicas", "*"},
      {"TOPIC", TOPIC, "leader.replication.throttled.replicas", "x"},
      {"TOPIC", TOPIC, "remote.storage.enable", "true"},
      {"BROKER", "" + node, "log.retention.ms", "600000000"},
      {"BROKER", "" + node, "log.cleaner.threads", "2"},
      {"BROKER", "" + node, "leader.replication.throttled.rate", "1000000"},
      {"BROKER", "" + node, "min.insync.replicas", "1"},
      {"BROKER", "" + node, "node.id", "7"},
      {"BROKER", "", "num.io.threads", "4"},
      {"BROKER", "", "max.connections.per.ip", "1000"},
      {"BROKER", "", "message.max.bytes", "2000000"},
      {"BROKER_LOGGER", "" + node, "root", "ERROR"},
      {"BROKER_LOGGER", "" + node, "root", "LOUD"},
      {"BROKER_LOGGER", "" + node, "no.such.logger", "INFO"},
      {"GROUP", "facts-group", "consumer.session.timeout.ms", "50000"},
      {"GROUP", "facts-group", "no.such.key", "1"},
      {"CLIENT_METRICS", "facts-metrics", "interval.ms", "10000"},
      {"CLIENT_METRICS", "facts-metrics", "match", "client_id=x"},
      {"CLIENT_METRICS", "facts-metrics", "match", "client_id"},
      {"CLIENT_METRICS", "facts-metrics", "no.such.key", "1"},
    };
    for (String[] each : wanted) {
      ConfigResource resource = new ConfigResource(Type.valueOf(each[0]), each[1]);
      String name = String.join(" ", each);
      tell("set " + name, () -> changed(resource, each[2], each[3]));
    }
    tell("list all, then", () -> typesOnce(5));
    for (String[] each : wanted) {
      ConfigResource resource = new ConfigResource(Type.valueOf(each[0]), each[1]);
      tell("delete " + String.join(" ", each), () -> changed(resource, each[2], null));
    }
  }

  private void replicas() {
    TopicPartition partition = new TopicPartition(TOPIC, 0);
    TopicPartitionReplica replica = new TopicPartitionReplica(TOPIC, 0, node);
    tell("move nowhere", () -> admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all().get());
    tell("move to where it is", () -> {
      String directory =
          admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).keySet()
              .iterator().next();
      return admin.alterReplicaLogDirs(Map.of(replica, directory)).all().get();
    });
    for (ElectionType type : ElectionType.values()) {
      tell("elect " + type,
          () -> admin.electLeaders(type, Set.of(partition)).partitions().get().get(partition)
              .map(problem -> problem.getClass().getSimpleName()));
    }
    tell("cancel no reassignment",
        () -> admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all().get());
    tell("reassign to an unknown broker", () -> {
      NewPartitionReassignment target = new NewPartitionReassignment(List.of(77));
      return admin.alterPartitionReassignments(Map.of(partition, Optional.of(target))).all().get();
    });
  }

  private void fixed() {
    tell("cluster", () -> {
      DescribeClusterOptions options =
          new DescribeClusterOptions().includeFencedBrokers(true).includeAuthorizedOperations(true);
      return new ArrayList<>(new TreeSet<>(
          admin.describeCluster(options).authorizedOperations().get()));
    });
    tell("unregister", () -> admin.unregisterBroker(77).all().get());
    Set<RaftVoterEndpoint> endpoints = Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1));
    tell("add a voter", () -> admin.addRaftVoter(77, Uuid.ONE_UUID, endpoints).all().get());
    tell("remove a voter", () -> admin.removeRaftVoter(77, Uuid.ONE_UUID).all().get());
    tell("create a token", () -> admin.createDelegationToken().delegationToken().get());
    tell("renew a token", () -> admin.renewDelegationToken(new byte[3]).expiryTimestamp().get());
    tell("expire a token", () -> admin.expireDelegationToken(new byte[3]).expiryTimestamp().get());
    tell("describe tokens", () -> admin.describeDelegationToken().delegationTokens().get());
  }
}
