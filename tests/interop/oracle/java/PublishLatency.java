import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Measures the time from a send to the call of a listener in the same process, at a fixed rate.
 *
 * Arguments: nameServer, topic, rate (messages a second), warm and count (messages). Prints one line: p50Us, p99Us,
 * cpuUs (processor time of this process, a message).
 */
public final class PublishLatency {
    private static final int BODY_BYTES = 128;
    private static final long WAIT_S = 10;

    private PublishLatency() {
    }

    public static void main(String[] words) {
        Lines.runAndExit(() -> run(Lines.arguments(words)));
    }

    private static void run(Map<String, String> arguments) throws Exception {
        String topic = arguments.get("topic");
        int warm = Integer.parseInt(arguments.get("warm"));
        int count = Integer.parseInt(arguments.get("count"));
        List<Long> times = Collections.synchronizedList(new ArrayList<>());
        DefaultMQProducer producer = new DefaultMQProducer("latency-java-producer");
        producer.setNamesrvAddr(arguments.get("nameServer"));
        producer.start();
        producer.send(new Message(topic, body(0)));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("latency-java-consumer");
        consumer.setNamesrvAddr(arguments.get("nameServer"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : batch) {
                times.add(now - ByteBuffer.wrap(message.getBody()).getLong());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        TimeUnit.SECONDS.sleep(2);
        long step = TimeUnit.SECONDS.toNanos(1) / Long.parseLong(arguments.get("rate"));
        long next = System.nanoTime();
        long cpu = 0;
        for (int i = 0; i < warm + count; i++) {
            if (i == warm) {
                times.clear();
                cpu = cpuNanos();
            }
            next += step;
            while (System.nanoTime() < next) {
                LockSupport.parkNanos(next - System.nanoTime());
            }
            producer.send(new Message(topic, body(System.nanoTime())));
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (times.size() < count && System.nanoTime() < deadline) {
            LockSupport.parkNanos(1_000_000);
        }
        long spent = cpuNanos() - cpu;
        List<Long> sorted = new ArrayList<>(times);
        Collections.sort(sorted);
        Lines.of("latency")
            .put("seen", sorted.size())
            .put("p50Us", sorted.get(sorted.size() / 2) / 1000)
            .put("p99Us", sorted.get((int) (sorted.size() * 0.99)) / 1000)
            .put("cpuUs", spent / 1000 / count)
            .print();
    }

    private static byte[] body(long stamp) {
        return ByteBuffer.allocate(BODY_BYTES).putLong(stamp).array();
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean)
            java.lang.management.ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
