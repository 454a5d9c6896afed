import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/** What a listener was given, in order; any thread may add. */
final class Seen {
    private final List<MessageExt> messages = new ArrayList<>();

    synchronized void add(Collection<MessageExt> more) {
        messages.addAll(more);
    }

    synchronized List<MessageExt> all() {
        return new ArrayList<>(messages);
    }

    synchronized int count() {
        return messages.size();
    }

    synchronized void clear() {
        messages.clear();
    }

    List<String> texts() {
        return ScenarioWorld.texts(all());
    }

    /** Bodies in the order of the alphabet, each once. */
    TreeSet<String> distinct() {
        return new TreeSet<>(texts());
    }

    void awaitDistinct(int wanted) throws Exception {
        ScenarioWorld.awaitTrue(wanted + " messages", () -> distinct().size() >= wanted);
    }

    /** Starts a consumer that accepts everything and notes it here. */
    Seen listen(DefaultMQPushConsumer consumer) throws Exception {
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            add(batch);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return this;
    }

    /** The same, queue by queue in order. */
    Seen listenInOrder(DefaultMQPushConsumer consumer) throws Exception {
        consumer.registerMessageListener((MessageListenerOrderly) (batch, context) -> {
            add(batch);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return this;
    }
}
