// A Kafka Streams topology with exactly_once_v2: each input goes to OUT with a mark, and the running
// count of each key to COUNTS. Runs until it is stopped.
//
//     java -cp JARS/* CountingStream.java BOOTSTRAP APPLICATION IN OUT COUNTS STATE_DIRECTORY

import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

public class CountingStream {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[5]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        settings.put("consumer.session.timeout.ms", "6000");
        settings.put("consumer.heartbeat.interval.ms", "500");
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("producer.transaction.timeout.ms", "10000");
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> input = builder.stream(arguments[2]);
        input.mapValues(value -> value + "!").to(arguments[3]);
        input.groupByKey()
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[4]);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            CountDownLatch ended = new CountDownLatch(1);
            streams.setUncaughtExceptionHandler(
                failure -> {
                    failure.printStackTrace();
                    return StreamThreadExceptionResponse.REPLACE_THREAD;
                });
            streams.setStateListener(
                (now, before) -> {
                    System.out.println(now);
                    if (now == KafkaStreams.State.ERROR) {
                        ended.countDown();
                    }
                });
            Runtime.getRuntime().addShutdownHook(new Thread(ended::countDown));
            streams.start();
            ended.await();
        }
    }
}
