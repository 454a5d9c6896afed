import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Ways to send, each seen through to a consumer. */
final class SendScenarios {
    private static final int MESSAGES = 20;

    private SendScenarios() {
    }

    static void sync(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        List<MessageQueue> queues = world.createTopic(producer);
        long before = producer.maxOffset(queues.get(1));
        List<SendResult> results = new ArrayList<>();
        for (int i = 0; i < MESSAGES; i++) {
            Message message = world.message("tag", "sync-" + (10 + i));
            message.putUserProperty("number", Integer.toString(i));
            message.putUserProperty("words", "grüße 世界 \"quoted\" \\ / \u2028");
            message.setFlag(i);
            results.add(producer.send(message, queues.get(1)));
        }
        Set<SendStatus> statuses = new TreeSet<>();
        boolean inARow = true;
        for (int i = 0; i < MESSAGES; i++) {
            statuses.add(results.get(i).getSendStatus());
            inARow &= results.get(i).getQueueOffset() == before + i;
        }
        world.saw("statuses", statuses);
        world.saw("offsetsInARow", inARow);
        world.saw("region", results.get(0).getRegionId());
        Seen seen = new Seen();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
        consumer.subscribe(world.topic(), "tag");
        seen.listen(consumer);
        seen.awaitDistinct(MESSAGES);
        world.saw("consumed", seen.distinct());
        world.saw("differences", new TreeSet<>(differences(seen.all(), results)));
        consumer.shutdown();
        producer.shutdown();
    }

    /** Which properties of consumed messages differ from what the producer knows; nothing if all is well. */
    private static List<String> differences(List<MessageExt> consumed, List<SendResult> results) throws Exception {
        List<String> found = new ArrayList<>();
        for (MessageExt message : consumed) {
            int number = Integer.parseInt(message.getUserProperty("number"));
            SendResult result = results.get(number);
            expect(found, "message id", result.getMsgId(), message.getMsgId());
            long physical = MessageDecoder.decodeMessageId(result.getOffsetMsgId()).getOffset();
            expect(found, "physical offset", physical, message.getCommitLogOffset());
            expect(found, "queue offset", result.getQueueOffset(), message.getQueueOffset());
            expect(found, "queue", result.getMessageQueue().getQueueId(), message.getQueueId());
            expect(found, "broker", result.getMessageQueue().getBrokerName(), message.getBrokerName());
            expect(found, "keys", "key-" + ScenarioWorld.text(message), message.getKeys());
            expect(found, "flag", number, message.getFlag());
            expect(found, "words", "grüße 世界 \"quoted\" \\ / \u2028", message.getUserProperty("words"));
            expect(found, "reconsume times", 0, message.getReconsumeTimes());
            boolean ordered = message.getBornTimestamp() <= message.getStoreTimestamp();
            expect(found, "born before stored", true, ordered);
        }
        return found;
    }

    private static void expect(List<String> found, String what, Object wanted, Object got) {
        if (!wanted.equals(got)) {
            found.add(what + ": " + wanted + " became " + got);
        }
    }

    static void async(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        ConcurrentLinkedQueue<String> answers = new ConcurrentLinkedQueue<>();
        for (int i = 0; i < MESSAGES; i++) {
            producer.send(world.message("tag", "async-" + (10 + i)), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answers.add(result.getSendStatus().name());
                }

                @Override
                public void onException(Throwable error) {
                    answers.add(error.toString());
                }
            });
        }
        ScenarioWorld.awaitTrue("all answers", () -> answers.size() == MESSAGES);
        world.saw("statuses", new TreeSet<>(answers));
        consumeTagged(world, MESSAGES);
        producer.shutdown();
    }

    static void oneWay(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        for (int i = 0; i < MESSAGES; i++) {
            producer.sendOneway(world.message("tag", "one-way-" + (10 + i)));
        }
        consumeTagged(world, MESSAGES);
        producer.shutdown();
    }

    static void batch(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        List<MessageQueue> queues = world.createTopic(producer);
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < MESSAGES; i++) {
            Message message = world.message("tag", "batch-" + (10 + i));
            message.putUserProperty("number", Integer.toString(i));
            batch.add(message);
        }
        long before = producer.maxOffset(queues.get(2));
        SendResult result = producer.send(batch, queues.get(2));
        world.saw("status", result.getSendStatus());
        world.saw("firstOffsetIsNext", result.getQueueOffset() == before);
        world.saw("ids", result.getMsgId().split(",").length);
        world.saw("offsetIds", result.getOffsetMsgId().split(",").length);
        Seen seen = consumeTagged(world, MESSAGES);
        Set<String> ids = new TreeSet<>();
        seen.all().forEach(message -> ids.add(message.getMsgId()));
        world.saw("idsKept", ids.equals(new TreeSet<>(Arrays.asList(result.getMsgId().split(",")))));
        producer.shutdown();
    }

    /** A body that the client compresses, and one near the limit that it does not. */
    static void large(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        byte[] plain = new byte[3_000_000];
        new java.util.Random(7).nextBytes(plain);
        producer.setCompressMsgBodyOverHowmuch(4_000_000);
        world.saw("plain", producer.send(new Message(world.topic(), "plain", plain)).getSendStatus());
        DefaultMQProducer packer = world.start(new DefaultMQProducer(world.group("packer")));
        byte[] even = new byte[100_000];
        Arrays.fill(even, (byte) 'a');
        world.saw("packed", packer.send(new Message(world.topic(), "packed", even)).getSendStatus());
        Seen seen = new Seen();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
        consumer.subscribe(world.topic(), "plain || packed");
        seen.listen(consumer);
        ScenarioWorld.awaitTrue("both", () -> seen.count() >= 2);
        Set<String> kept = new TreeSet<>();
        for (MessageExt message : seen.all()) {
            byte[] wanted = message.getTags().equals("plain") ? plain : even;
            kept.add(message.getTags() + "=" + Arrays.equals(wanted, message.getBody()));
        }
        world.saw("kept", kept);
        consumer.shutdown();
        packer.shutdown();
        producer.shutdown();
    }

    static void delayed(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        world.createTopic(producer);
        Seen seen = new Seen();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
        consumer.subscribe(world.topic(), "tag");
        seen.listen(consumer);
        for (int level = 1; level <= 2; level++) {
            Message message = world.message("tag", "level-" + level);
            message.setDelayTimeLevel(level);
            world.saw("status" + level, producer.send(message).getSendStatus());
        }
        seen.awaitDistinct(2);
        world.saw("consumed", seen.texts());
        for (MessageExt message : seen.all()) {
            long waited = message.getStoreTimestamp() - message.getBornTimestamp();
            long least = ScenarioWorld.text(message).equals("level-1") ? 1_000 : 5_000;
            world.saw("late " + ScenarioWorld.text(message), waited >= least - 100);
            world.saw("topic " + ScenarioWorld.text(message), message.getTopic().equals(world.topic()));
            world.saw("level " + ScenarioWorld.text(message), message.getDelayTimeLevel());
        }
        consumer.shutdown();
        producer.shutdown();
    }

    private static Seen consumeTagged(ScenarioWorld world, int count) throws Exception {
        Seen seen = new Seen();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
        consumer.subscribe(world.topic(), "tag");
        seen.listen(consumer);
        seen.awaitDistinct(count);
        world.saw("consumed", seen.distinct());
        consumer.shutdown();
        return seen;
    }
}
