// Right: Kafka Streams with exactly_once_v2, else its defaults. java -cp JARS/* StreamsCopier.java

import java.nio.file.Files;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

public class StreamsCopier {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", "gallery");
        settings.put("bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP_SERVERS"));
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("state.dir", Files.createTempDirectory("gallery-streams").toString());
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(System.getenv("ONCELOG_IN")).to(System.getenv("ONCELOG_OUT"));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(problem -> StreamThreadExceptionResponse.REPLACE_THREAD);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        new CountDownLatch(1).await();
    }
}
