import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Where a scenario runs, what it saw, and the clients it started; compiles against 4.9 and 5.x. */
final class ScenarioWorld {
    static final int QUEUES = 4;
    static final long WAIT_MS = 60_000;
    private static final long POLL_MS = 20;
    static final int REFRESH_MS = 1_000;

    final String nameServer;
    final String prefix;
    private final Map<String, String> facts = new TreeMap<>();
    private int clients;

    ScenarioWorld(String nameServer, String prefix) {
        this.nameServer = nameServer;
        this.prefix = prefix;
    }

    String topic() {
        return prefix + "-topic";
    }

    String group(String role) {
        return prefix + "-" + role;
    }

    /** Each client is an instance of its own: its own connections, its own client id. */
    <C extends ClientConfig> C configure(C client) {
        client.setNamesrvAddr(nameServer);
        client.setClientIP("127.0.0.1");
        client.setInstanceName(prefix + "-" + ++clients);
        // A retry topic is born with its group; by default a consumer hears of it up to 50 s later.
        client.setPollNameServerInterval(REFRESH_MS);
        // A client may skip a heartbeat after a rebalance; its pulls are refused until the next one.
        client.setHeartbeatBrokerInterval(REFRESH_MS);
        return client;
    }

    DefaultMQProducer producer() throws Exception {
        return start(new DefaultMQProducer(group("producer")));
    }

    <P extends DefaultMQProducer> P start(P producer) throws Exception {
        configure(producer);
        producer.setSendMsgTimeout(20_000);
        producer.setDefaultTopicQueueNums(QUEUES);
        producer.start();
        return producer;
    }

    /** A push consumer from the first message on, not started. */
    DefaultMQPushConsumer consumer(String role) {
        return configure(new DefaultMQPushConsumer(group(role)));
    }

    DefaultMQPushConsumer fromFirst(DefaultMQPushConsumer consumer) {
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    /** Lets the topic come into being by a message, and waits until the name server knows it. */
    List<MessageQueue> createTopic(DefaultMQProducer producer) throws Exception {
        producer.send(message("first", "first"));
        return await("the route of " + topic(), () -> {
            List<MessageQueue> queues = new ArrayList<>(new TreeSet<>(producer.fetchPublishMessageQueues(topic())));
            return queues.size() == QUEUES ? queues : null;
        });
    }

    Message message(String tag, String body) {
        return new Message(topic(), tag, "key-" + body, bytes(body));
    }

    /** Repeats an attempt until it returns something; what it throws counts as nothing yet. */
    static <T> T await(String what, Callable<T> attempt) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(WAIT_MS);
        Exception last = null;
        while (System.nanoTime() < deadline) {
            try {
                T found = attempt.call();
                if (found != null) {
                    return found;
                }
            } catch (Exception error) {
                last = error;
            }
            Thread.sleep(POLL_MS);
        }
        throw new IllegalStateException("no " + what + " in " + WAIT_MS + " ms", last);
    }

    static void awaitTrue(String what, Callable<Boolean> condition) throws Exception {
        await(what, () -> condition.call() ? Boolean.TRUE : null);
    }

    /** Notes a fact; lists keep their order, sets are sorted by whoever made them. */
    void saw(String name, Object value) {
        if (value instanceof Collection) {
            List<String> words = new ArrayList<>();
            ((Collection<?>) value).forEach(one -> words.add(String.valueOf(one)));
            facts.put(name, String.join(" ", words));
        } else {
            facts.put(name, String.valueOf(value));
        }
    }

    void print() {
        Lines.of("scenario").put("facts", facts).print();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static List<String> texts(Collection<MessageExt> messages) {
        List<String> found = new ArrayList<>();
        messages.forEach(message -> found.add(text(message)));
        return found;
    }
}
