import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A short life of an ordinary client, for the recording of frames; compiles against 4.9 and 5.x.
 *
 * Arguments: nameServer, name (part of group names), topic, requestTopic, singles (how many plain messages),
 * full (false: only produce).
 */
public final class ClientSession {
    private static final long WAIT_SECONDS = 40;
    private static final int DELAY_LEVEL_ONE_SECOND = 1;
    private static final int DELAY_LEVEL_TWO_HOURS = 18;

    private final Map<String, String> arguments;
    private final String name;
    private final String topic;
    private final List<SendResult> sent = new ArrayList<>();

    private ClientSession(Map<String, String> arguments) {
        this.arguments = arguments;
        this.name = arguments.get("name");
        this.topic = arguments.get("topic");
    }

    public static void main(String[] words) {
        Lines.runAndExit(() -> {
            NeutralIds.use();
            new ClientSession(Lines.arguments(words)).run();
        });
    }

    private void run() throws Exception {
        DefaultMQProducer producer = configure(new DefaultMQProducer("producer-" + name), "producer-");
        producer.setSendMsgTimeout(20_000);
        producer.start();
        sendSingles(producer);
        sendBatch(producer);
        sendSpecials(producer);
        if (Boolean.parseBoolean(arguments.get("full"))) {
            lookUp(producer);
            sendInTransactions();
            pull();
            consume();
            consumeInOrder();
            consumeBySql();
            pullLite();
            request(producer);
        }
        producer.shutdown();
    }

    /** Each client has its own instance: a broker forgets the client id as soon as one group of it leaves. */
    private <C extends ClientConfig> C configure(C client, String kind) {
        client.setNamesrvAddr(arguments.get("nameServer"));
        client.setClientIP("127.0.0.1");
        client.setInstanceName(kind + name);
        return client;
    }

    private Message message(int number, int size) {
        byte[] body = new byte[size];
        byte[] words = ("message " + number + " of " + name + "; ").getBytes(StandardCharsets.UTF_8);
        for (int i = 0; i < size; i++) {
            body[i] = words[i % words.length];
        }
        return new Message(topic, number % 3 == 0 ? null : "tag-" + number % 3, "key-" + number, number, body, true);
    }

    private void sendSingles(DefaultMQProducer producer) throws Exception {
        int count = Integer.parseInt(arguments.get("singles"));
        for (int i = 0; i < count; i++) {
            Message message = message(i, 1 + i * 37 % 800);
            if (i % 4 == 0) {
                message.putUserProperty("number", Integer.toString(i));
            }
            sent.add(producer.send(message, new MessageQueue(topic, "broker-a", i % 4)));
        }
    }

    private void sendBatch(DefaultMQProducer producer) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            Message message = message(1000 + i, 10 + i);
            message.putUserProperty("wörter", "grüße 世界 🚀");
            batch.add(message);
        }
        sent.add(producer.send(batch, new MessageQueue(topic, "broker-a", 1)));
    }

    private void sendSpecials(DefaultMQProducer producer) throws Exception {
        Message unicode = new Message(topic, "märz", "schlüssel 钥匙 key\tb", "Grüße, 世界 🚀".getBytes(StandardCharsets.UTF_8));
        unicode.putUserProperty("rand", " a ");
        unicode.putUserProperty("quote", "a\"b\\c/d<e>&'\u007f\u0085\u2028");
        sent.add(producer.send(unicode));
        sent.add(producer.send(message(2000, 6_000), new MessageQueue(topic, "broker-a", 2)));
        Message unwaited = message(2001, 20);
        unwaited.setWaitStoreMsgOK(false);
        unwaited.setBuyerId("buyer");
        producer.sendOneway(unwaited, new MessageQueue(topic, "broker-a", 3));
        for (int level : new int[] {DELAY_LEVEL_ONE_SECOND, DELAY_LEVEL_TWO_HOURS}) {
            Message delayed = message(2100 + level, 30);
            delayed.setDelayTimeLevel(level);
            sent.add(producer.send(delayed));
        }
        sent.add(producer.send(message(2200, 40), (queues, message, key) -> queues.get(key.hashCode() & 3), "shard"));
    }

    private void lookUp(DefaultMQProducer producer) throws Exception {
        MessageQueue queue = new MessageQueue(topic, "broker-a", 1);
        producer.minOffset(queue);
        producer.maxOffset(queue);
        producer.searchOffset(queue, System.currentTimeMillis() - 500);
        producer.earliestMsgStoreTime(queue);
        producer.viewMessage(topic, sent.get(1).getOffsetMsgId());
        producer.viewMessage(topic, sent.get(1).getMsgId());
        producer.queryMessage(topic, "key-1", 8, 0, Long.MAX_VALUE);
        try {
            producer.queryMessage(topic, "no-such-key", 8, 0, Long.MAX_VALUE);
        } catch (Exception expected) {
            Lines.of("expected").put("error", expected.getClass().getName()).print();
        }
    }

    private void sendInTransactions() throws Exception {
        CountDownLatch checked = new CountDownLatch(1);
        TransactionMQProducer producer = configure(new TransactionMQProducer("transactions-" + name), "transactions-");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (LocalTransactionState state : LocalTransactionState.values()) {
            producer.sendMessageInTransaction(message(3000 + state.ordinal(), 50), state);
        }
        await(checked, "the check of a half message");
        producer.shutdown();
    }

    private void pull() throws Exception {
        DefaultMQPullConsumer consumer = configure(new DefaultMQPullConsumer("pull-" + name), "pull-");
        consumer.start();
        Set<MessageQueue> queues = new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic));
        MessageExt last = null;
        for (MessageQueue queue : queues) {
            PullResult result = consumer.pull(queue, "tag-1 || tag-2", 0, 8);
            for (MessageExt message : result.getMsgFoundList()) {
                last = message;
            }
            consumer.updateConsumeOffset(queue, result.getNextBeginOffset());
            consumer.getOffsetStore().persist(queue);
            consumer.pull(queue, "*", 1_000_000, 8);
        }
        consumer.fetchConsumeOffset(queues.iterator().next(), true);
        consumer.fetchConsumeOffset(new MessageQueue(topic, "broker-a", 3), true);
        consumer.sendMessageBack(last, 3);
        consumer.shutdown();
    }

    private void consume() throws Exception {
        CountDownLatch enough = new CountDownLatch(12);
        CountDownLatch refused = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = configure(new DefaultMQPushConsumer("push-" + name), "push-");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "tag-1 || tag-2 || märz");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            enough.countDown();
            if (refused.getCount() > 0) {
                refused.countDown();
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        await(enough, "consumed messages");
        consumer.shutdown();
    }

    private void consumeInOrder() throws Exception {
        CountDownLatch enough = new CountDownLatch(4);
        DefaultMQPushConsumer consumer = configure(new DefaultMQPushConsumer("order-" + name), "order-");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            enough.countDown();
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        await(enough, "messages consumed in order");
        consumer.shutdown();
    }

    private void consumeBySql() throws Exception {
        CountDownLatch enough = new CountDownLatch(2);
        DefaultMQPushConsumer consumer = configure(new DefaultMQPushConsumer("sql-" + name), "sql-");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, MessageSelector.bySql("number BETWEEN 0 AND 8 AND TAGS IS NOT NULL"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            enough.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        await(enough, "messages chosen by their properties");
        consumer.shutdown();
    }

    private void pullLite() throws Exception {
        DefaultLitePullConsumer consumer = configure(new DefaultLitePullConsumer("lite-" + name), "lite-");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(8);
        consumer.subscribe(topic, "tag-1");
        consumer.start();
        if (consumer.poll(WAIT_SECONDS * 1000).isEmpty()) {
            throw new IllegalStateException("the lite pull consumer got nothing");
        }
        consumer.shutdown();
    }

    private void request(DefaultMQProducer producer) throws Exception {
        String requestTopic = arguments.get("requestTopic");
        DefaultMQPushConsumer server = configure(new DefaultMQPushConsumer("server-" + name), "server-");
        server.subscribe(requestTopic, "*");
        server.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    producer.send(MessageUtil.createReplyMessage(message, "answer".getBytes(StandardCharsets.UTF_8)));
                }
            } catch (Exception error) {
                error.printStackTrace();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        server.start();
        producer.request(new Message(requestTopic, "question".getBytes(StandardCharsets.UTF_8)), WAIT_SECONDS * 1000);
        server.shutdown();
    }

    private static void await(CountDownLatch latch, String what) throws Exception {
        if (!latch.await(WAIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no " + what + " in " + WAIT_SECONDS + " s");
        }
    }
}
