// Orders become invoices, with Flink's Kafka source and sink. A start resumes from the last checkpoint.

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Invoicing {
    static final String SERVERS = System.getenv("KAFKA_BOOTSTRAP_SERVERS");
    static final String GROUP = System.getenv("ONCELOG_GROUP");

    public static void main(String[] arguments) throws Exception {
        Path checkpoints = Files.createDirectories(Path.of(System.getenv("STATE"), "checkpoints"));
        Configuration settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofSeconds(1));
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, checkpoints.toUri().toString());
        settings.set(
            CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
            ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        last(checkpoints).ifPresent(
            path -> settings.set(StateRecoveryOptions.SAVEPOINT_PATH, path.toUri().toString()));
        StreamExecutionEnvironment environment =
            StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(2);
        KafkaSource<String> orders =
            KafkaSource.<String>builder()
                .setBootstrapServers(SERVERS)
                .setTopics(System.getenv("ONCELOG_IN"))
                .setGroupId(GROUP)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("isolation.level", "read_committed")
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        KafkaSink<String> invoices =
            KafkaSink.<String>builder()
                .setBootstrapServers(SERVERS)
                .setRecordSerializer(
                    KafkaRecordSerializationSchema.builder()
                        .setTopic(System.getenv("ONCELOG_OUT"))
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(GROUP)
                .setTransactionNamingStrategy(
                    TransactionNamingStrategy.valueOf(System.getenv("NAMING")))
                .setProperty("transaction.timeout.ms", "600000")
                .build();
        environment
            .fromSource(orders, WatermarkStrategy.noWatermarks(), "orders")
            .uid("orders")
            .sinkTo(invoices)
            .uid("invoices");
        environment.execute("invoices");
    }

    static Optional<Path> last(Path checkpoints) throws IOException {
        try (Stream<Path> files = Files.walk(checkpoints)) {
            return files
                .filter(file -> file.endsWith("_metadata"))
                .max(Comparator.comparing(file -> file.toFile().lastModified()))
                .map(Path::getParent);
        }
    }
}
