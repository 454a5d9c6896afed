import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQAdminImpl;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads every message of every queue of the given topics through the official client and prints a line each.
 *
 * Arguments: nameServer, topics (comma list), samples (how many messages per queue are looked up by time and by
 * key). Kinds of lines: message, queue (bounds and searches by time), query (searches by key or unique id).
 */
public final class Dump {
    private static final int PULL_COUNT = 1024;
    private static final int QUERY_COUNT_MAX = 32;

    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("dump");
    private final int samples;

    private Dump(Map<String, String> arguments) throws MQClientException {
        samples = Integer.parseInt(arguments.get("samples"));
        consumer.setNamesrvAddr(arguments.get("nameServer"));
        consumer.setInstanceName("dump");
        consumer.setConsumerPullTimeoutMillis(30_000);
        consumer.start();
    }

    public static void main(String[] words) {
        Lines.runAndExit(() -> run(Lines.arguments(words)));
    }

    private static void run(Map<String, String> arguments) throws Exception {
        Dump dump = new Dump(arguments);
        for (String topic : arguments.get("topics").split(",")) {
            for (MessageQueue queue : new TreeSet<>(dump.queuesOf(topic))) {
                dump.readQueue(queue);
            }
        }
    }

    private Set<MessageQueue> queuesOf(String topic) throws Exception {
        return Lines.await(() -> consumer.fetchSubscribeMessageQueues(topic));
    }

    private void readQueue(MessageQueue queue) throws Exception {
        long begin = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        long stride = Math.max(1, (end - begin) / samples);
        List<MessageExt> sampled = new ArrayList<>();
        for (long offset = begin; offset < end;) {
            PullResult result = consumer.pull(queue, "*", offset, PULL_COUNT);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException(queue + " at " + offset + " of " + end + ": " + result);
            }
            for (MessageExt message : result.getMsgFoundList()) {
                print(message);
                if (samples > 0 && (message.getQueueOffset() - begin) % stride == 0) {
                    sampled.add(message);
                }
            }
            offset = result.getNextBeginOffset();
        }
        printQueue(queue, begin, end, sampled);
        for (MessageExt message : sampled) {
            queryUnique(queue.getTopic(), message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
            if (message.getKeys() != null) {
                for (String key : message.getKeys().split(MessageConst.KEY_SEPARATOR)) {
                    query(queue.getTopic(), key);
                }
            }
        }
    }

    private void print(MessageExt message) throws Exception {
        Map<String, String> properties = new HashMap<>(message.getProperties());
        // The pulling client adds the queue's bounds; they are not part of the stored message.
        properties.remove(MessageConst.PROPERTY_MIN_OFFSET);
        properties.remove(MessageConst.PROPERTY_MAX_OFFSET);
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        Lines.of("message").put("topic", message.getTopic()).put("queueId", message.getQueueId())
            .put("queueOffset", message.getQueueOffset()).put("physicalOffset", message.getCommitLogOffset())
            .put("storeSize", message.getStoreSize()).put("sysFlag", message.getSysFlag())
            .put("bornTimestamp", message.getBornTimestamp()).put("storeTimestamp", message.getStoreTimestamp())
            .put("bornHost", host(message.getBornHost())).put("storeHost", host(message.getStoreHost()))
            .put("reconsumeTimes", message.getReconsumeTimes())
            .put("preparedTransactionOffset", message.getPreparedTransactionOffset())
            .put("flag", message.getFlag()).put("bodyCrc", message.getBodyCRC()).put("bodySha1", Lines.sha1(body))
            .put("offsetMsgId", MessageDecoder.createMessageId(message.getStoreHost(), message.getCommitLogOffset()))
            .put("properties", properties).print();
    }

    private static String host(java.net.SocketAddress address) {
        java.net.InetSocketAddress inet = (java.net.InetSocketAddress) address;
        return inet.getAddress().getHostAddress() + ":" + inet.getPort();
    }

    private void printQueue(MessageQueue queue, long begin, long end, List<MessageExt> sampled) throws Exception {
        TreeSet<Long> times = new TreeSet<>();
        for (MessageExt message : sampled) {
            times.add(message.getStoreTimestamp() - 1);
            times.add(message.getStoreTimestamp());
            times.add(message.getStoreTimestamp() + 1);
        }
        long[] asked = times.stream().mapToLong(Long::longValue).toArray();
        long[] found = new long[asked.length];
        for (int i = 0; i < asked.length; i++) {
            found[i] = consumer.searchOffset(queue, asked[i]);
        }
        Lines.of("queue").put("topic", queue.getTopic()).put("queueId", queue.getQueueId())
            .put("minOffset", begin).put("maxOffset", end).put("times", asked).put("offsets", found).print();
    }

    /** The client keeps the newest message only; delayed and half messages share their id with the delivered one. */
    private void queryUnique(String topic, String id) throws Exception {
        if (id == null) {
            return;
        }
        MQAdminImpl admin = consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
            .getMQAdminImpl();
        long[] offsets;
        try {
            offsets = new long[] {admin.queryMessageByUniqKey(topic, id).getCommitLogOffset()};
        } catch (MQClientException nothing) {
            offsets = new long[0];
        }
        Lines.of("query").put("topic", topic).put("key", id).put("offsets", offsets).print();
    }

    private void query(String topic, String key) throws Exception {
        long[] found;
        try {
            found = consumer.queryMessage(topic, key, QUERY_COUNT_MAX, 0, Long.MAX_VALUE).getMessageList().stream()
                .mapToLong(MessageExt::getCommitLogOffset).toArray();
        } catch (MQClientException nothing) {
            found = new long[0];
        }
        Lines.of("query").put("topic", topic).put("key", key).put("offsets", found).print();
    }
}
