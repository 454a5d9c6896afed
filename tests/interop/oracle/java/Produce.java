import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Sends `count` messages by a plan that depends on `seed` alone and prints a line per acknowledged one.
 *
 * Arguments: nameServer, brokerAddress, seed, count, topics (comma list), queues, transactions, and if there are
 * transactions: longTopic, a retry topic of over 127 characters. Topics are created first. Two thirds go as batches, the rest one by one; bodies over 4096 bytes are
 * compressed by the client, each third of them with another method.
 */
public final class Produce {
    private static final String BROKER = "broker-a";
    private static final int IN_FLIGHT_MAX = 128;
    private static final int DELAY_LEVEL_TWO_HOURS = 18;
    private static final CompressionType[] METHODS = {CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD};

    private final Map<String, String> arguments;
    private final Random random;
    private final String[] topics;
    private final int queues;
    private final Semaphore inFlight = new Semaphore(IN_FLIGHT_MAX);
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final DefaultMQProducer[] producers = new DefaultMQProducer[METHODS.length];
    private int serial;

    private Produce(Map<String, String> arguments) {
        this.arguments = arguments;
        this.random = new Random(Long.parseLong(arguments.get("seed")));
        this.topics = arguments.get("topics").split(",");
        this.queues = Integer.parseInt(arguments.get("queues"));
    }

    public static void main(String[] words) {
        Lines.runAndExit(() -> new Produce(Lines.arguments(words)).run());
    }

    private void run() throws Exception {
        createTopics();
        for (int i = 0; i < METHODS.length; i++) {
            producers[i] = configure(new DefaultMQProducer("produce-" + METHODS[i].name().toLowerCase()));
            producers[i].setCompressType(METHODS[i]);
            producers[i].start();
        }
        int transactions = Integer.parseInt(arguments.get("transactions"));
        if (transactions > 0) {
            sendInTransactions(transactions);
            sendOddities();
        }
        int count = Integer.parseInt(arguments.get("count"));
        while (serial < count && failure.get() == null) {
            if (random.nextInt(24) == 0) {
                sendBatch(Math.min(8 + random.nextInt(56), count - serial));
            } else {
                sendOne();
            }
        }
        inFlight.acquire(IN_FLIGHT_MAX);
        if (failure.get() != null) {
            throw new IllegalStateException("a send failed", failure.get());
        }
    }

    private void createTopics() throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(arguments.get("nameServer"));
        admin.setInstanceName("produce-admin");
        admin.start();
        for (String topic : topics) {
            admin.createAndUpdateTopicConfig(arguments.get("brokerAddress"), new TopicConfig(topic, queues, queues, 6));
        }
        for (String topic : topics) {
            Lines.await(() -> admin.examineTopicRouteInfo(topic));
        }
        admin.shutdown();
    }

    private <P extends DefaultMQProducer> P configure(P producer) {
        producer.setNamesrvAddr(arguments.get("nameServer"));
        producer.setInstanceName(producer.getProducerGroup());
        producer.setSendMsgTimeout(60_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        return producer;
    }

    private void sendOne() throws Exception {
        int size = drawSize();
        Message message = draw(topics[random.nextInt(topics.length)], size);
        if (random.nextInt(500) == 0) {
            message.setDelayTimeLevel(random.nextBoolean() ? 1 : DELAY_LEVEL_TWO_HOURS);
        }
        MessageQueue queue = new MessageQueue(message.getTopic(), BROKER, random.nextInt(queues));
        inFlight.acquire();
        // The client hides a compressed body behind the original one again, so the digest is taken first.
        byte[] body = message.getBody();
        producers[random.nextInt(METHODS.length)].send(message, queue, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                acknowledge("single", message, result.getMsgId(), result.getOffsetMsgId(), result, 0, body);
                inFlight.release();
            }

            @Override
            public void onException(Throwable error) {
                failure.compareAndSet(null, error);
                inFlight.release();
            }
        });
    }

    private void sendBatch(int size) throws Exception {
        String topic = topics[random.nextInt(topics.length)];
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < size; i++) {
            messages.add(draw(topic, 1 + random.nextInt(400)));
        }
        inFlight.acquire();
        producers[0].send(messages, new MessageQueue(topic, BROKER, random.nextInt(queues)), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                String[] ids = result.getMsgId().split(",");
                String[] offsetIds = result.getOffsetMsgId().split(",");
                for (int i = 0; i < messages.size(); i++) {
                    Message message = messages.get(i);
                    acknowledge("batch", message, ids[i], offsetIds[i], result, i, message.getBody());
                }
                inFlight.release();
            }

            @Override
            public void onException(Throwable error) {
                failure.compareAndSet(null, error);
                inFlight.release();
            }
        });
    }

    private void sendInTransactions(int count) throws Exception {
        TransactionMQProducer producer = configure(new TransactionMQProducer("produce-transactions"));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        LocalTransactionState[] states = LocalTransactionState.values();
        for (int i = 0; i < count; i++) {
            LocalTransactionState state = states[i % states.length];
            Message message = draw(topics[i % topics.length], 1 + random.nextInt(6000));
            SendResult result = producer.sendMessageInTransaction(message, state);
            acknowledge(state.name(), message, result.getMsgId(), result.getOffsetMsgId(), result, 0, message.getBody());
        }
        producer.shutdown();
    }

    private void sendOddities() throws Exception {
        String address = arguments.get("brokerAddress");
        Message message = draw(arguments.get("longTopic"), 100);
        SendResult result = RawSend.send(producers[0], address, message, 0);
        acknowledge("single", message, result.getMsgId(), result.getOffsetMsgId(), result, 0, message.getBody());
        List<Message> batch = List.of(draw(topics[0], 0), draw(topics[0], 10), draw(topics[0], 0));
        result = RawSend.sendBatch(producers[0], address, batch, 0);
        for (int i = 0; i < batch.size(); i++) {
            String offsetId = result.getOffsetMsgId().split(",")[i];
            String id = MessageClientIDSetter.getUniqID(batch.get(i));
            acknowledge("batch", batch.get(i), id, offsetId, result, i, batch.get(i).getBody());
        }
    }

    private int drawSize() {
        int kind = random.nextInt(100);
        if (kind < 4) {
            return 4097 + random.nextInt(16_000);
        }
        return kind < 10 ? 1 + random.nextInt(3) : 1 + random.nextInt(2_000);
    }

    private Message draw(String topic, int size) {
        int number = serial++;
        String keys = "key-" + number + (number % 3 == 0 ? " shared-" + number % 50 : "");
        String tag = number % 7 == 0 ? null : "tag-" + number % 5;
        Message message = new Message(topic, tag, keys, number, drawBody(size), true);
        if (number % 2 == 0) {
            message.putUserProperty("serial", Integer.toString(number));
        }
        if (number % 11 == 0) {
            message.putUserProperty("wörter", "grüße 世界 🚀 " + number);
        }
        MessageClientIDSetter.setUniqID(message);
        return message;
    }

    private byte[] drawBody(int size) {
        byte[] body = new byte[size];
        random.nextBytes(body);
        if (random.nextInt(4) > 0) {
            byte[] words = "the quick brown fox jumps over the lazy dog; ".getBytes(StandardCharsets.UTF_8);
            for (int i = 0; i < size; i++) {
                body[i] = i % 97 == 0 ? body[i] : words[i % words.length];
            }
        }
        return body;
    }

    private void acknowledge(String kind, Message message, String msgId, String offsetMsgId, SendResult result,
        int index, byte[] body) {
        try {
            Lines.of("receipt").put("send", kind).put("topic", message.getTopic())
                .put("queueId", result.getMessageQueue().getQueueId())
                .put("queueOffset", result.getQueueOffset() + index).put("msgId", msgId)
                .put("offsetMsgId", offsetMsgId).put("delayLevel", message.getDelayTimeLevel())
                .put("bodyCrc", Lines.crc(body)).put("bodySha1", Lines.sha1(body)).print();
        } catch (Exception error) {
            failure.compareAndSet(null, error);
        }
    }
}
