import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Ways to consume by push. */
final class ConsumeScenarios {
    private static final int MESSAGES = 40;
    private static final int DELAY_LEVEL_ONE_SECOND = 1;

    private ConsumeScenarios() {
    }

    /** Half of the messages wait in the queues, half come while pulls wait. */
    static void concurrently(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        send(world, producer, 10, MESSAGES / 2);
        Seen seen = new Seen();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
        consumer.subscribe(world.topic(), "tag");
        consumer.setConsumeMessageBatchMaxSize(4);
        seen.listen(consumer);
        seen.awaitDistinct(MESSAGES / 2);
        send(world, producer, 10 + MESSAGES / 2, MESSAGES / 2);
        seen.awaitDistinct(MESSAGES);
        world.saw("distinct", seen.distinct().size());
        world.saw("times", seen.count());
        consumer.shutdown();
        producer.shutdown();
    }

    private static void send(ScenarioWorld world, DefaultMQProducer producer, int first, int count) throws Exception {
        for (int i = first; i < first + count; i++) {
            producer.send(world.message("tag", "message-" + i));
        }
    }

    /** Messages of one key go to one queue and are consumed in the order of their sending. */
    static void orderly(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        for (int i = 0; i < MESSAGES; i++) {
            Message message = world.message("tag", i % 4 + "/" + (10 + i));
            producer.send(message, (queues, unused, key) -> queues.get((Integer) key), i % 4);
        }
        Seen seen = new Seen();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
        consumer.subscribe(world.topic(), "tag");
        seen.listenInOrder(consumer);
        seen.awaitDistinct(MESSAGES);
        sayByKey(world, seen);
        consumer.shutdown();
        producer.shutdown();
    }

    /** Consumes in order what somebody else has sent, key/number, and says what came for each key. */
    static void readInOrder(ScenarioWorld world) throws Exception {
        Seen seen = new Seen();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("reader"));
        consumer.subscribe(world.topic(), "tag");
        seen.listenInOrder(consumer);
        seen.awaitDistinct(MESSAGES);
        sayByKey(world, seen);
        consumer.shutdown();
    }

    private static void sayByKey(ScenarioWorld world, Seen seen) {
        Map<String, List<String>> byKey = new TreeMap<>();
        for (String text : seen.texts()) {
            byKey.computeIfAbsent(text.split("/")[0], key -> new ArrayList<>()).add(text.split("/")[1]);
        }
        byKey.forEach((key, numbers) -> world.saw("key " + key, numbers));
    }

    /** A queue waits for its first message; what comes after it keeps its place. */
    static void orderlyRetry(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        List<MessageQueue> queues = world.createTopic(producer);
        for (String text : new String[] {"a", "b", "c"}) {
            producer.send(world.message("tag", text), queues.get(3));
        }
        Seen seen = new Seen();
        AtomicInteger failures = new AtomicInteger();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
        consumer.subscribe(world.topic(), "tag");
        consumer.registerMessageListener((MessageListenerOrderly) (batch, context) -> {
            seen.add(batch);
            boolean fails = ScenarioWorld.text(batch.get(0)).equals("b") && failures.incrementAndGet() <= 2;
            context.setSuspendCurrentQueueTimeMillis(200);
            return fails ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        seen.awaitDistinct(3);
        world.saw("consumed", seen.texts());
        consumer.shutdown();
        producer.shutdown();
    }

    static void broadcasting(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        send(world, producer, 10, MESSAGES / 2);
        List<Seen> all = new ArrayList<>();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("everyone"));
            broadcast(consumer);
            consumer.subscribe(world.topic(), "tag");
            members.add(consumer);
            all.add(new Seen().listen(consumer));
        }
        for (Seen seen : all) {
            seen.awaitDistinct(MESSAGES / 2);
        }
        send(world, producer, 10 + MESSAGES / 2, MESSAGES / 2);
        for (int i = 0; i < 2; i++) {
            all.get(i).awaitDistinct(MESSAGES);
            world.saw("member " + i, all.get(i).distinct().size());
            members.get(i).shutdown();
        }
        producer.shutdown();
    }

    /** The enumeration lives in another package in 4.9 than in 5.x. */
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : consumer.getClass().getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                    if (model.toString().equals("BROADCASTING")) {
                        method.invoke(consumer, model);
                    }
                }
            }
        }
    }

    /** "Aa" and "BB" have the same hash in Java, which is all that a consume queue knows of a tag. */
    static void tags(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        for (String tag : new String[] {"Aa", "BB", "red", "blue", "rouge"}) {
            producer.send(world.message(tag, "tag-" + tag));
        }
        producer.send(new Message(world.topic(), ScenarioWorld.bytes("untagged")));
        for (String expression : new String[] {"Aa", "red || blue", "*"}) {
            Seen seen = new Seen();
            DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("by" + expression.length()));
            consumer.subscribe(world.topic(), expression);
            seen.listen(consumer);
            int wanted = expression.equals("Aa") ? 1 : expression.equals("*") ? 7 : 2;
            seen.awaitDistinct(wanted);
            world.saw(expression, seen.distinct());
            consumer.shutdown();
        }
        producer.shutdown();
    }

    static void sql92(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        String[] colours = {"red", "green", "blue"};
        for (int i = 0; i < 9; i++) {
            Message message = world.message(i % 2 == 0 ? "even" : "odd", "number-" + i);
            message.putUserProperty("number", Integer.toString(i));
            message.putUserProperty("colour", colours[i % 3]);
            if (i == 1) {
                message.putUserProperty("special", "yes");
            }
            producer.send(message);
        }
        String[] expressions = {
            "number BETWEEN 3 AND 6 AND colour IN ('red', 'blue')",
            "special IS NOT NULL OR number > 7.5",
            "NOT (TAGS = 'even') AND number <> 1",
        };
        for (int i = 0; i < expressions.length; i++) {
            Seen seen = new Seen();
            DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("sql-" + i));
            consumer.subscribe(world.topic(), MessageSelector.bySql(expressions[i]));
            seen.listen(consumer);
            seen.awaitDistinct(i == 1 ? 2 : 3);
            world.saw(expressions[i], seen.distinct());
            consumer.shutdown();
        }
        DefaultMQPushConsumer wrong = world.consumer("sql-wrong");
        wrong.subscribe(world.topic(), MessageSelector.bySql("number >"));
        try {
            new Seen().listen(wrong);
            world.saw("wrong", "accepted");
        } catch (MQClientException error) {
            world.saw("wrong", error.getResponseCode());
        }
        producer.shutdown();
    }

    static void retryThenDeadLetter(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        String group = world.group("consumer");
        Seen seen = new Seen();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
        consumer.setMaxReconsumeTimes(2);
        consumer.subscribe(world.topic(), "tag");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            seen.add(batch);
            context.setDelayLevelWhenNextConsume(DELAY_LEVEL_ONE_SECOND);
            boolean good = ScenarioWorld.text(batch.get(0)).equals("good");
            return good ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        SendResult bad = producer.send(world.message("tag", "bad"));
        producer.send(world.message("tag", "good"));
        MessageExt dead = awaitDeadLetter(world, producer, "%DLQ%" + group);
        List<String> times = new ArrayList<>();
        TreeSet<String> topics = new TreeSet<>();
        for (MessageExt message : seen.all()) {
            if (ScenarioWorld.text(message).equals("bad")) {
                times.add(Integer.toString(message.getReconsumeTimes()));
                topics.add(Boolean.toString(message.getTopic().equals(world.topic())));
            }
        }
        world.saw("timesOfBad", times);
        world.saw("topicIsOriginal", topics);
        world.saw("dead", ScenarioWorld.text(dead));
        world.saw("deadTimes", dead.getReconsumeTimes());
        world.saw("deadIdKept", dead.getMsgId().equals(bad.getMsgId()));
        world.saw("deadTopicKept", world.topic().equals(dead.getProperty("RETRY_TOPIC")));
        world.saw("deadOriginKept", bad.getOffsetMsgId().equals(dead.getProperty("ORIGIN_MESSAGE_ID")));
        world.saw("deadFrom", dead.getProperty("DLQ_ORIGIN_TOPIC"));
        world.saw("deadKeys", dead.getKeys());
        consumer.shutdown();
        producer.shutdown();
    }

    private static MessageExt awaitDeadLetter(ScenarioWorld world, DefaultMQProducer producer, String topic)
            throws Exception {
        MessageQueue queue = ScenarioWorld.await("a dead letter queue", () -> {
            List<MessageQueue> queues = new ArrayList<>(producer.fetchPublishMessageQueues(topic));
            return queues.isEmpty() ? null : queues.get(0);
        });
        world.saw("deadQueue", queue.getQueueId());
        DefaultLitePullConsumer reader = world.configure(new DefaultLitePullConsumer(world.group("undertaker")));
        reader.start();
        reader.assign(List.of(queue));
        reader.seekToBegin(queue);
        MessageExt dead = ScenarioWorld.await("a dead letter", () -> {
            List<MessageExt> found = reader.poll(1_000);
            return found.isEmpty() ? null : found.get(0);
        });
        reader.shutdown();
        return dead;
    }

    /** Two members share the queues; when one leaves, the other goes on where it stopped. */
    static void twoMembers(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        List<MessageQueue> queues = world.createTopic(producer);
        Map<Integer, String> owners = new ConcurrentHashMap<>();
        Seen seen = new Seen();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (String name : new String[] {"one", "two"}) {
            DefaultMQPushConsumer member = world.fromFirst(world.consumer("team"));
            member.subscribe(world.topic(), "tag || more");
            member.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
                seen.add(batch);
                owners.put(context.getMessageQueue().getQueueId(), name);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            member.start();
            members.add(member);
        }
        AtomicInteger sent = new AtomicInteger();
        ScenarioWorld.awaitTrue("two owners", () -> {
            sendToAll(world, producer, queues, sent);
            Thread.sleep(200);
            return owners.size() == queues.size() && new TreeSet<>(owners.values()).size() == 2;
        });
        members.get(0).shutdown();
        ScenarioWorld.awaitTrue("one owner", () -> {
            sendToAll(world, producer, queues, sent);
            Thread.sleep(200);
            return new TreeSet<>(owners.values()).size() == 1;
        });
        world.saw("owners", new TreeSet<>(owners.values()));
        seen.awaitDistinct(sent.get());
        world.saw("lost", sent.get() - seen.distinct().size());
        members.get(1).shutdown();
        producer.shutdown();
    }

    private static void sendToAll(
            ScenarioWorld world, DefaultMQProducer producer, List<MessageQueue> queues, AtomicInteger sent)
            throws Exception {
        for (MessageQueue queue : queues) {
            producer.send(world.message("tag", "message-" + sent.incrementAndGet()), queue);
        }
    }
}
