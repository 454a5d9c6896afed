import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What an operator's tools ask a cluster, and what a broker then asks a consumer, for the recording of frames.
 *
 * Arguments: nameServer, brokerAddress, topics (comma list, created with four queues), longTopic, step (create or
 * examine). Answers that name folders or the machine (broker settings, run time facts) are not asked for.
 */
public final class AdminSession {
    private static final long WAIT_SECONDS = 40;

    private final Map<String, String> arguments;
    private final String broker;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(10_000);

    private AdminSession(Map<String, String> arguments) {
        this.arguments = arguments;
        this.broker = arguments.get("brokerAddress");
    }

    public static void main(String[] words) {
        Lines.runAndExit(() -> {
            NeutralIds.use();
            new AdminSession(Lines.arguments(words)).run();
        });
    }

    private void run() throws Exception {
        admin.setNamesrvAddr(arguments.get("nameServer"));
        admin.setClientIP("127.0.0.1");
        admin.setInstanceName("admin");
        admin.start();
        String[] topics = arguments.get("topics").split(",");
        if (arguments.get("step").equals("create")) {
            create(topics);
        } else {
            examine(topics[0]);
            popAndAcknowledge(topics[0]);
        }
        admin.shutdown();
    }

    private void create(String[] topics) throws Exception {
        for (String topic : topics) {
            TopicConfig config = new TopicConfig(topic, 4, 4, 6);
            config.setAttributes(Collections.singletonMap("+message.type", "NORMAL"));
            admin.createAndUpdateTopicConfig(broker, config);
        }
        for (String topic : topics) {
            Lines.await(() -> admin.examineTopicRouteInfo(topic));
        }
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("group-of-admin");
        group.setRetryMaxTimes(3);
        admin.createAndUpdateSubscriptionGroupConfig(broker, group);
        DefaultMQProducer producer = new DefaultMQProducer("producer-of-admin");
        producer.setNamesrvAddr(arguments.get("nameServer"));
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName("producer-of-admin");
        producer.start();
        byte[] body = "a record of version 2".getBytes(StandardCharsets.UTF_8);
        Message message = new Message(arguments.get("longTopic"), "tag", "key", body);
        MessageClientIDSetter.setUniqID(message);
        RawSend.send(producer, broker, message, 0);
        Message empty = new Message(topics[0], "empty", "key-of-empty", new byte[0]);
        MessageClientIDSetter.setUniqID(empty);
        RawSend.sendBatch(producer, broker, List.of(empty), 0);
        producer.shutdown();
    }

    private void examine(String topic) throws Exception {
        String group = "group-of-admin";
        CountDownLatch consumed = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer(group, topic, consumed);
        admin.fetchAllTopicList();
        admin.examineBrokerClusterInfo();
        admin.examineTopicRouteInfo(topic);
        admin.examineTopicStats(topic);
        admin.examineTopicConfig(broker, topic);
        admin.examineSubscriptionGroupConfig(broker, group);
        admin.getAllTopicConfig(broker, 5_000);
        admin.getAllSubscriptionGroup(broker, 5_000);
        admin.createAndUpdateKvConfig("ORDER_TOPIC_CONFIG", topic, "broker-a:4");
        admin.getKVConfig("ORDER_TOPIC_CONFIG", topic);
        admin.getKVListByNamespace("ORDER_TOPIC_CONFIG");
        admin.deleteKvConfig("ORDER_TOPIC_CONFIG", topic);
        admin.wipeWritePermOfBroker(arguments.get("nameServer"), "broker-a");
        admin.addWritePermOfBroker(arguments.get("nameServer"), "broker-a");
        admin.queryTopicConsumeByWho(topic);
        admin.queryTopicsByConsumer(group);
        admin.examineConsumerConnectionInfo(group);
        admin.examineConsumeStats(group);
        admin.queryConsumeTimeSpan(topic, group);
        admin.queryConsumeQueue(broker, topic, 0, 0, 4, null);
        String clientId = consumer.buildMQClientId();
        admin.getConsumerRunningInfo(group, clientId, false);
        admin.getConsumeStatus(topic, group, clientId);
        SendResult sent = send(topic);
        admin.consumeMessageDirectly(group, clientId, topic, sent.getMsgId());
        admin.resetOffsetByTimestamp(topic, group, 0, true);
        admin.updateConsumeOffset(broker, group, sent.getMessageQueue(), 1);
        consumer.shutdown();
        admin.deleteSubscriptionGroup(broker, "group-of-nobody", true);
        admin.deleteTopicInBroker(Collections.singleton(broker), "topic-of-nobody");
        admin.deleteTopicInNameServer(Collections.singleton(arguments.get("nameServer")), "topic-of-nobody");
    }

    private void popAndAcknowledge(String topic) throws Exception {
        admin.setMessageRequestMode(broker, topic, "pop-of-admin", MessageRequestMode.POP, 0, 5_000);
        CountDownLatch consumed = new CountDownLatch(6);
        consumer("pop-of-admin", topic, consumed).shutdown();
    }

    /** Returns a consumer that has consumed enough. */
    private DefaultMQPushConsumer consumer(String group, String topic, CountDownLatch consumed) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(arguments.get("nameServer"));
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(!group.startsWith("pop"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!consumed.await(WAIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException(group + " consumed nothing in " + WAIT_SECONDS + " s");
        }
        return consumer;
    }

    private SendResult send(String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producer-of-admin");
        producer.setNamesrvAddr(arguments.get("nameServer"));
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName("producer-of-admin");
        producer.start();
        SendResult sent = producer.send(new Message(topic, "tag", "key", "directly".getBytes(StandardCharsets.UTF_8)));
        producer.shutdown();
        return sent;
    }
}
