import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The same load for each of several clusters, message ids included; topics `orders` and `audit` exist.
 *
 * Afterwards group `billing` is online and has consumed everything, group `archive` is offline and lags behind, and the
 * producer of group `shop` is connected.
 */
final class AdminLoad {
    private static final int ORDERS = 40;
    private static final int AUDITS_CONSUMED = 6;
    private static final int AUDITS = 10;
    private static final int ORDER_QUEUES = 4;
    private static final int AUDIT_QUEUES = 2;
    private static final List<String> IDS = new ArrayList<>();

    private final String label;
    private final String nameServer;
    private final DefaultMQProducer producer;

    private AdminLoad(String label, String nameServer) {
        this.label = label;
        this.nameServer = nameServer;
        this.producer = configure(new DefaultMQProducer("shop"), "shop");
    }

    static void load(String label, String nameServer) throws Exception {
        new AdminLoad(label, nameServer).run();
    }

    private void run() throws Exception {
        producer.setSendMsgTimeout(20_000);
        producer.start();
        for (int i = 0; i < ORDERS; i++) {
            send(i, "orders", i % ORDER_QUEUES);
        }
        for (int i = 0; i < AUDITS_CONSUMED; i++) {
            send(ORDERS + i, "audit", i % AUDIT_QUEUES);
        }
        consume("archive", "audit", "*", AUDITS_CONSUMED).shutdown();
        for (int i = AUDITS_CONSUMED; i < AUDITS; i++) {
            send(ORDERS + i, "audit", i % AUDIT_QUEUES);
        }
        consume("billing", "orders", "tag-0 || tag-1 || tag-2", ORDERS);
        sendTraced();
    }

    private <C extends ClientConfig> C configure(C client, String name) {
        client.setNamesrvAddr(nameServer);
        client.setClientIP("127.0.0.1");
        client.setInstanceName(name + "-" + label);
        client.setPollNameServerInterval(1_000);
        client.setHeartbeatBrokerInterval(1_000);
        client.setPersistConsumerOffsetInterval(500);
        return client;
    }

    /** Last, because the time of its trace message is not ours to choose. */
    private void sendTraced() throws Exception {
        DefaultMQProducer traced = configure(new DefaultMQProducer("traced-shop"), "traced-shop");
        traced.setEnableTrace(true);
        traced.start();
        traced.send(message(ORDERS + AUDITS, "audit"), new MessageQueue("audit", "broker-a", 0));
        traced.shutdown();
    }

    private void send(int number, String topic, int queue) throws Exception {
        producer.send(message(number, topic), new MessageQueue(topic, "broker-a", queue));
    }

    private static Message message(int number, String topic) {
        byte[] body = ("body of " + topic + " " + number).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, "tag-" + number % 3, "key-" + number + " shared", body);
        message.putUserProperty("colour", number % 2 == 0 ? "red" : "blue");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, id(number));
        return message;
    }

    private static String id(int number) {
        while (IDS.size() <= number) {
            IDS.add(MessageClientIDSetter.createUniqID());
        }
        return IDS.get(number);
    }

    /** Returns a consumer that has seen as many messages as it should. */
    private DefaultMQPushConsumer consume(String group, String topic, String tags, int wanted) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = configure(new DefaultMQPushConsumer(group), group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> seen.add(message.getMsgId()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        ScenarioWorld.awaitTrue(wanted + " messages of " + topic, () -> seen.size() >= wanted);
        // What the listener has seen counts only a moment later; a shutdown in between would not save it.
        OffsetStore offsets = consumer.getDefaultMQPushConsumerImpl().getOffsetStore();
        ScenarioWorld.awaitTrue("offsets of " + topic, () ->
            offsets.cloneOffsetTable(topic).values().stream().mapToLong(Long::longValue).sum() >= wanted);
        return consumer;
    }
}
