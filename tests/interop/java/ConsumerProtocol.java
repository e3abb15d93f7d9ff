// KafkaConsumers with group.protocol=consumer (KIP-848) against any cluster. Ends with "OK" and 0, or
// tells what went wrong and ends with 1.
//
//     java -cp JARS/* ConsumerProtocol.java BOOTSTRAP NAME WHAT
//
// WHAT: come-and-go, pattern, static, copy. NAME is what its topics and groups begin with.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class ConsumerProtocol {
    private static final int PARTITIONS = 4;
    private static final int ROUND = 200; // records
    private static String bootstrap;
    private static String name;
    private static Admin admin;
    private static int written = 0;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        name = arguments[1];
        try {
            admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
            switch (arguments[2]) {
                case "come-and-go" -> comeAndGo();
                case "pattern" -> pattern();
                case "static" -> staticMembers();
                case "copy" -> copy();
                default -> throw new IllegalArgumentException(arguments[2]);
            }
            System.out.println("OK");
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace(System.out);
            System.exit(1); // also when members still poll
        }
    }

    // Records are read once, though members come and go: each gives up only what others take.
    private static void comeAndGo() throws Exception {
        createTopic(name);
        Seen seen = new Seen();
        Member first = new Member(List.of(name), seen, Map.of());
        shared(first);
        seen.awaitAll(write());
        Member second = new Member(List.of(name), seen, Map.of());
        shared(first, second);
        seen.awaitAll(write());
        require(first.revoked.size() == PARTITIONS / 2, "given up: " + first.revoked);
        require(second.assigned.equals(new HashSet<>(first.revoked)), "taken: " + second.assigned);
        ConsumerGroupDescription group = described(GroupState.STABLE);
        require(group.type() == GroupType.CONSUMER, "type " + group.type());
        require(group.groupEpoch().equals(group.targetAssignmentEpoch()), "epochs of " + group);
        group.members().forEach(
            member -> {
                require(member.memberEpoch().equals(group.groupEpoch()), "epoch of " + member);
                require(member.upgraded().equals(Optional.of(true)), "protocol of " + member);
                require(member.assignment().equals(member.targetAssignment().get()), "" + member);
            });
        second.leave();
        shared(first);
        seen.awaitAll(write());
        Member third = new Member(List.of(name), seen, Map.of());
        shared(first, third);
        first.leave();
        shared(third);
        seen.awaitAll(write());
        third.leave();
        described(GroupState.EMPTY);
    }

    // The broker finds the topics of a pattern, also those that come later.
    private static void pattern() throws Exception {
        createTopic(name + "-a");
        createTopic(name + "-b");
        createTopic(name + "-x");
        SubscriptionPattern pattern = new SubscriptionPattern("^" + name + "-[abc]$");
        Member member = new Member(pattern, new Seen(), Map.of());
        owns(member, "-a", "-b");
        createTopic(name + "-c");
        owns(member, "-a", "-b", "-c");
        Member wrong = new Member(new SubscriptionPattern("("), new Seen(), Map.of());
        await(() -> wrong.failure != null, () -> "a pattern that is none is taken");
        require(wrong.failure instanceof InvalidRegularExpression, "heard " + wrong.failure);
        member.leave();
    }

    private static void owns(Member member, String... ends) {
        Set<TopicPartition> wanted = new HashSet<>();
        for (String end : ends) {
            wanted.addAll(partitions(name + end));
        }
        await(() -> member.assigned.equals(wanted), () -> member + ", not " + wanted);
    }

    // A static member that restarts gets what it had; the other one is left alone until it leaves.
    private static void staticMembers() throws Exception {
        createTopic(name);
        Seen seen = new Seen();
        Member one = new Member(List.of(name), seen, Map.of("group.instance.id", "one"));
        Map<String, String> asTwo = Map.of("group.instance.id", "two");
        Member two = new Member(List.of(name), seen, asTwo);
        shared(one, two);
        seen.awaitAll(write());
        Set<TopicPartition> had = two.assigned;
        int changes = one.changes;
        Member twin = new Member(List.of(name), seen, asTwo);
        await(() -> twin.failure != null, () -> "two members of one name");
        require(twin.failure instanceof UnreleasedInstanceIdException, "heard " + twin.failure);
        two.close(CloseOptions.GroupMembershipOperation.DEFAULT);
        Member again = new Member(List.of(name), seen, asTwo);
        await(() -> again.assigned.equals(had), () -> again + ", not " + had);
        seen.awaitAll(write());
        require(one.changes == changes, "the other one was moved: " + one);
        again.close(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        shared(one);
        seen.awaitAll(write());
        one.close(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        described(GroupState.EMPTY);
    }

    // Each record once in the copy, while members come and go and brokers may die.
    private static void copy() throws Exception {
        createTopic(name);
        createTopic(name + "-out");
        Seen tried = new Seen();
        Map<String, String> copies = Map.of("max.poll.records", "20");
        List<Member> members = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            members.add(new Member(List.of(name), tried, copies, name + "-out", name + "-" + i));
            if (i > 1) {
                members.remove(0).leave();
            }
            int wanted = write();
            await(() -> tried.counts.size() >= wanted - ROUND / 2, () -> members + ": " + tried);
            System.out.println("copied " + tried.counts.size());
        }
        tried.awaitSome(written);
        for (Member member : members) {
            member.leave();
        }
        Seen copied = new Seen();
        Map<String, Object> settings = consumerSettings();
        settings.put("isolation.level", "read_committed");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            Set<TopicPartition> all = partitions(name + "-out");
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            await(
                () -> {
                    consumer.poll(Duration.ofMillis(100)).forEach(copied::add);
                    return all.stream().allMatch(place -> consumer.position(place) >= ends.get(place));
                },
                () -> "copied: " + copied);
        }
        copied.awaitAll(written);
    }

    // -- members

    private static class Member implements ConsumerRebalanceListener {
        volatile Set<TopicPartition> assigned = Set.of();
        volatile Throwable failure;
        volatile int changes = 0;
        final Collection<TopicPartition> revoked = new ConcurrentLinkedQueue<>();
        private final KafkaConsumer<String, String> consumer;
        private final KafkaProducer<String, String> producer; // of one that copies
        private final String target;
        private final Seen seen;
        private final Thread thread;
        private volatile CloseOptions.GroupMembershipOperation ends;

        Member(Object subscription, Seen seen, Map<String, String> more) {
            this(subscription, seen, more, null, null);
        }

        Member(Object subscription, Seen seen, Map<String, String> more, String target, String id) {
            Map<String, Object> settings = consumerSettings();
            settings.put("group.protocol", "consumer");
            settings.put("group.id", name + "-group");
            settings.putAll(more);
            this.seen = seen;
            this.target = target;
            producer = target == null ? null : producer(Map.of("transactional.id", id));
            consumer = new KafkaConsumer<>(settings);
            thread = new Thread(() -> run(subscription));
            thread.start();
        }

        private void run(Object subscription) {
            try {
                if (subscription instanceof SubscriptionPattern pattern) {
                    consumer.subscribe(pattern, this);
                } else {
                    consumer.subscribe((Collection<String>) subscription, this);
                }
                if (producer != null) {
                    producer.initTransactions();
                }
                while (ends == null) {
                    ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(50));
                    if (records.isEmpty()) {
                        continue;
                    }
                    if (producer != null) {
                        copies(records);
                    } else {
                        records.forEach(seen::add);
                        consumer.commitSync();
                    }
                }
            } catch (Throwable heard) {
                failure = heard;
            } finally {
                CloseOptions.GroupMembershipOperation how =
                    ends == null ? CloseOptions.GroupMembershipOperation.DEFAULT : ends;
                consumer.close(CloseOptions.groupMembershipOperation(how));
                if (producer != null) {
                    producer.close();
                }
            }
        }

        private void copies(ConsumerRecords<String, String> records) {
            try {
                producer.beginTransaction();
                for (ConsumerRecord<String, String> row : records) {
                    producer.send(new ProducerRecord<>(target, row.partition(), null, row.value()));
                }
                producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                producer.commitTransaction();
                records.forEach(seen::add);
            } catch (KafkaException refused) {
                System.out.println("aborts: " + refused);
                producer.abortTransaction();
                Set<TopicPartition> mine = consumer.assignment();
                Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(mine);
                for (TopicPartition place : mine) {
                    OffsetAndMetadata there = committed.get(place);
                    consumer.seek(place, there == null ? 0 : there.offset());
                }
            }
        }

        void leave() throws InterruptedException {
            close(CloseOptions.GroupMembershipOperation.DEFAULT);
        }

        void close(CloseOptions.GroupMembershipOperation how) throws InterruptedException {
            ends = how;
            thread.join(30_000);
            require(!thread.isAlive(), this + " does not end");
            require(failure == null, "" + this);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> given) {
            changes++;
            assigned = Set.copyOf(consumer.assignment());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> taken) {
            changes++;
            revoked.addAll(taken);
            Set<TopicPartition> left = new HashSet<>(assigned);
            left.removeAll(taken);
            assigned = left;
        }

        @Override
        public String toString() {
            return "a member with " + assigned + " " + failure;
        }
    }

    // The members have all partitions, each about as many, and none twice.
    private static void shared(Member... members) {
        await(
            () -> {
                int count = 0;
                Set<TopicPartition> all = new HashSet<>();
                for (Member member : members) {
                    require(member.failure == null, "" + member);
                    count += member.assigned.size();
                    all.addAll(member.assigned);
                    if (member.assigned.size() != PARTITIONS / members.length) {
                        return false;
                    }
                }
                return count == PARTITIONS && all.equals(partitions(name));
            },
            () -> "not shared: " + List.of(members));
    }

    // What was read, and how often.
    private static class Seen {
        final Map<String, Integer> counts = new ConcurrentHashMap<>();

        void add(ConsumerRecord<String, String> row) {
            counts.merge(row.value(), 1, Integer::sum);
        }

        void awaitSome(int count) {
            await(() -> counts.size() >= count, () -> "not " + count + ": " + this);
        }

        void awaitAll(int count) {
            awaitSome(count);
            require(counts.values().stream().allMatch(times -> times == 1), "twice: " + this);
        }

        @Override
        public String toString() {
            TreeMap<Integer, Integer> times = new TreeMap<>();
            counts.values().forEach(each -> times.merge(each, 1, Integer::sum));
            return "records by how often they were read: " + times;
        }
    }

    // -- the cluster

    private static void createTopic(String topic) throws Exception {
        NewTopic wanted = new NewTopic(topic, Optional.of(PARTITIONS), Optional.empty());
        admin.createTopics(List.of(wanted)).all().get();
    }

    private static Set<TopicPartition> partitions(String topic) {
        Set<TopicPartition> all = new HashSet<>();
        for (int i = 0; i < PARTITIONS; i++) {
            all.add(new TopicPartition(topic, i));
        }
        return all;
    }

    // Writes a round of records; returns how many there are.
    private static int write() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int i = 0; i < ROUND; i++, written++) {
                producer.send(new ProducerRecord<>(name, written % PARTITIONS, null, "" + written));
            }
        }
        return written;
    }

    private static ConsumerGroupDescription described(GroupState state) {
        await(() -> group().groupState() == state, () -> "not " + state + ": " + group());
        return group();
    }

    private static ConsumerGroupDescription group() {
        try {
            return admin.describeConsumerGroups(List.of(name + "-group")).all().get()
                .get(name + "-group");
        } catch (Exception failure) {
            throw new AssertionError(failure);
        }
    }

    private static KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        return new KafkaProducer<>(settings);
    }

    private static Map<String, Object> consumerSettings() {
        return new HashMap<>(
            Map.of(
                "bootstrap.servers", bootstrap,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "metadata.max.age.ms", "1000",
                "key.deserializer", StringDeserializer.class.getName(),
                "value.deserializer", StringDeserializer.class.getName()));
    }

    private static void await(BooleanSupplier holds, Supplier<String> told) {
        long deadline = System.nanoTime() + 40_000_000_000L;
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError(told.get());
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException ended) {
                throw new AssertionError(ended);
            }
        }
    }

    private static void require(boolean holds, String told) {
        if (!holds) {
            throw new AssertionError(told);
        }
    }
}
