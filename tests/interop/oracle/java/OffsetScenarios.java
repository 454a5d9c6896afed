import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Where consumers stand in their queues, and how single messages are found. */
final class OffsetScenarios {
    private static final int MESSAGES = 10;

    private OffsetScenarios() {
    }

    /** Assign, seek, commit by hand; a second consumer of the group finds what the first committed. */
    static void liteAssign(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        MessageQueue queue = world.createTopic(producer).get(2);
        for (int i = 0; i < MESSAGES; i++) {
            producer.send(world.message("tag", "lite-" + i), queue);
        }
        long first = producer.maxOffset(queue) - MESSAGES;
        DefaultLitePullConsumer consumer = lite(world);
        consumer.assign(List.of(queue));
        // A client that seeks while its first pull is on the way may still hand out what that brings.
        poll(consumer, (int) first + MESSAGES);
        consumer.seek(queue, first + 6);
        world.saw("from 6", ScenarioWorld.texts(poll(consumer, 4)));
        consumer.seekToBegin(queue);
        world.saw("from begin", poll(consumer, (int) first + MESSAGES).size() - first);
        consumer.seekToEnd(queue);
        producer.send(world.message("tag", "late"), queue);
        world.saw("from end", ScenarioWorld.texts(poll(consumer, 1)));
        Map<MessageQueue, Long> offsets = new HashMap<>();
        offsets.put(queue, first + 5);
        consumer.commitSync(offsets, true);
        world.saw("committed", ScenarioWorld.await("offset", () -> committed(consumer, queue, first + 5)) - first);
        world.saw("before all", consumer.offsetForTimestamp(queue, 1L));
        world.saw("after all", consumer.offsetForTimestamp(queue, Long.MAX_VALUE / 2) - first);
        consumer.shutdown();
        DefaultLitePullConsumer second = lite(world);
        second.assign(List.of(queue));
        world.saw("second goes on at", ScenarioWorld.texts(poll(second, 6)).get(0));
        second.shutdown();
        producer.shutdown();
    }

    private static Long committed(DefaultLitePullConsumer consumer, MessageQueue queue, long wanted) throws Exception {
        long found = consumer.committed(queue);
        return found == wanted ? found : null;
    }

    private static DefaultLitePullConsumer lite(ScenarioWorld world) throws Exception {
        DefaultLitePullConsumer consumer = world.configure(new DefaultLitePullConsumer(world.group("lite")));
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        return consumer;
    }

    private static List<MessageExt> poll(DefaultLitePullConsumer consumer, int count) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        ScenarioWorld.awaitTrue(count + " polled messages", () -> {
            found.addAll(consumer.poll(200));
            return found.size() >= count;
        });
        return found;
    }

    static void liteSubscribe(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        for (int i = 0; i < MESSAGES; i++) {
            producer.send(world.message(i % 2 == 0 ? "even" : "odd", "lite-" + i));
        }
        DefaultLitePullConsumer consumer = world.configure(new DefaultLitePullConsumer(world.group("lite")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(world.topic(), "even");
        consumer.start();
        world.saw("polled", new TreeSet<>(ScenarioWorld.texts(poll(consumer, MESSAGES / 2))));
        world.saw("queues", consumer.assignment().size());
        consumer.shutdown();
        producer.shutdown();
    }

    /** What a group has consumed it does not get again after it was away. */
    static void resume(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        for (int round = 1; round <= 2; round++) {
            for (int i = 0; i < MESSAGES; i++) {
                producer.send(world.message("tag", "round-" + round + "-" + i));
            }
            Seen seen = new Seen();
            DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
            consumer.subscribe(world.topic(), "tag");
            seen.listen(consumer);
            seen.awaitDistinct(MESSAGES);
            Thread.sleep(500);
            world.saw("round " + round, seen.distinct());
            consumer.shutdown();
        }
        producer.shutdown();
    }

    /** An operator sends a running group back to the beginning. */
    static void reset(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        long before = System.currentTimeMillis() - 1;
        world.createTopic(producer);
        for (int i = 0; i < MESSAGES; i++) {
            producer.send(world.message("tag", "reset-" + i));
        }
        Seen seen = new Seen();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
        consumer.subscribe(world.topic(), "tag");
        seen.listen(consumer);
        seen.awaitDistinct(MESSAGES);
        Thread.sleep(500);
        seen.clear();
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        MessageQueue any = producer.fetchPublishMessageQueues(world.topic()).get(0);
        String broker = client.findBrokerAddressInPublish(any.getBrokerName());
        Map<MessageQueue, Long> offsets = client.getMQClientAPIImpl()
                .invokeBrokerToResetOffset(broker, world.topic(), consumer.getConsumerGroup(), before, true, 20_000);
        world.saw("queues", offsets.size());
        world.saw("offsets", new TreeSet<>(offsets.values()));
        seen.awaitDistinct(MESSAGES);
        world.saw("consumedAgain", seen.distinct());
        consumer.shutdown();
        producer.shutdown();
    }

    static void query(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        MessageQueue queue = world.createTopic(producer).get(1);
        long before = producer.maxOffset(queue);
        List<SendResult> results = new ArrayList<>();
        for (int i = 0; i < MESSAGES; i++) {
            Message message = world.message("tag", "query-" + i);
            message.setKeys(List.of("one-" + i, "all"));
            results.add(producer.send(message, queue));
        }
        SendResult third = results.get(3);
        world.saw("byOffsetId", ScenarioWorld.text(producer.viewMessage(world.topic(), third.getOffsetMsgId())));
        world.saw("byUniqueId", ScenarioWorld.text(ScenarioWorld.await("message by its id", () ->
                producer.viewMessage(world.topic(), third.getMsgId()))));
        QueryResult all = ScenarioWorld.await("messages by key", () -> {
            QueryResult found = producer.queryMessage(world.topic(), "all", 32, 0, Long.MAX_VALUE);
            return found.getMessageList().size() == MESSAGES ? found : null;
        });
        world.saw("byKeyOfAll", new TreeSet<>(ScenarioWorld.texts(all.getMessageList())));
        QueryResult one = producer.queryMessage(world.topic(), "one-7", 32, 0, Long.MAX_VALUE);
        world.saw("byKeyOfOne", ScenarioWorld.texts(one.getMessageList()));
        try {
            producer.queryMessage(world.topic(), "none", 32, 0, Long.MAX_VALUE);
            world.saw("byNoKey", "found");
        } catch (MQClientException error) {
            world.saw("byNoKey", error.getResponseCode());
        }
        try {
            String broker = third.getOffsetMsgId().substring(0, 16);
            producer.viewMessage(world.topic(), broker + "00000FFFFFFFFFFF");
            world.saw("noSuchOffset", "found");
        } catch (MQBrokerException | MQClientException error) {
            world.saw("noSuchOffset", error.getClass().getSimpleName());
        }
        world.saw("min", producer.minOffset(queue));
        world.saw("max", producer.maxOffset(queue) - before);
        world.saw("searchPast", producer.searchOffset(queue, 1));
        world.saw("searchFuture", producer.searchOffset(queue, System.currentTimeMillis() + 60_000) - before);
        long earliest = producer.earliestMsgStoreTime(queue);
        world.saw("earliestIsRecent", System.currentTimeMillis() - earliest < 3 * ScenarioWorld.WAIT_MS);
        producer.shutdown();
    }
}
