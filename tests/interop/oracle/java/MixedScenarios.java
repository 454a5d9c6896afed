import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** One topic on two brokers of different make; the topic is there. Compiles against 4.9 and 5.x. */
final class MixedScenarios {
    private static final int MESSAGES = 200;
    private static final int KEYS = 8;
    private static final long PACE_MS = 5;

    private MixedScenarios() {
    }

    /** Every message reaches every group once, wherever it was stored. */
    static void spread(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        Map<String, Integer> brokers = new TreeMap<>();
        for (int i = 0; i < MESSAGES; i++) {
            SendResult sent = producer.send(world.message("tag", "spread-" + i));
            brokers.merge(sent.getMessageQueue().getBrokerName(), 1, Integer::sum);
        }
        world.saw("sent", brokers);
        for (String role : new String[] {"one", "two"}) {
            DefaultMQPushConsumer consumer = world.fromFirst(world.consumer(role));
            consumer.subscribe(world.topic(), "tag");
            Seen seen = new Seen().listen(consumer);
            seen.awaitDistinct(MESSAGES);
            world.saw("times " + role, seen.count());
            consumer.shutdown();
        }
        inOrder(world, producer);
        producer.shutdown();
    }

    /** A key stays in one queue of one broker, and its messages in their order. */
    private static void inOrder(ScenarioWorld world, DefaultMQProducer producer) throws Exception {
        TreeSet<String> brokers = new TreeSet<>();
        for (int i = 0; i < MESSAGES; i++) {
            int key = i % KEYS;
            SendResult sent = producer.send(world.message("ordered", key + "/" + i),
                (queues, message, number) -> new ArrayList<>(new TreeSet<>(queues)).get((Integer) number), key);
            brokers.add(sent.getMessageQueue().getBrokerName());
        }
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("order"));
        consumer.subscribe(world.topic(), "ordered");
        Seen seen = new Seen().listenInOrder(consumer);
        seen.awaitDistinct(MESSAGES);
        Map<String, Integer> last = new TreeMap<>();
        boolean rises = true;
        for (MessageExt message : seen.all()) {
            String[] words = ScenarioWorld.text(message).split("/");
            int number = Integer.parseInt(words[1]);
            rises &= last.getOrDefault(words[0], -1) < number;
            last.put(words[0], number);
        }
        world.saw("order kept", rises);
        world.saw("order on", brokers);
        consumer.shutdown();
    }

    /** One broker dies when "going" is printed and comes back after "survived"; no send fails, nothing is lost. */
    static void survive(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.producer();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
        consumer.subscribe(world.topic(), "tag");
        Seen seen = new Seen().listen(consumer);
        List<String> bodies = new ArrayList<>();
        world.saw("before", send(world, producer, bodies, MESSAGES));
        say("going");
        while (brokers(world, producer).size() > 1) {
            send(world, producer, bodies, 1);
        }
        Thread.sleep(2 * ScenarioWorld.REFRESH_MS); // the producer asks for the route again by then
        world.saw("meanwhile", send(world, producer, bodies, MESSAGES).size());
        say("survived");
        while (brokers(world, producer).size() < 2) {
            send(world, producer, bodies, 1);
        }
        ScenarioWorld.awaitTrue("sends to both", () -> send(world, producer, bodies, KEYS).size() == 2);
        ScenarioWorld.awaitTrue("all messages", () -> seen.distinct().containsAll(bodies));
        world.saw("consumed", seen.distinct().size() == bodies.size());
        consumer.shutdown();
        producer.shutdown();
    }

    private static TreeSet<String> send(ScenarioWorld world, DefaultMQProducer producer, List<String> bodies, int count)
        throws Exception {
        TreeSet<String> brokers = new TreeSet<>();
        for (int i = 0; i < count; i++) {
            String body = "survive-" + bodies.size();
            brokers.add(producer.send(world.message("tag", body)).getMessageQueue().getBrokerName());
            bodies.add(body);
            Thread.sleep(PACE_MS);
        }
        return brokers;
    }

    private static TreeSet<String> brokers(ScenarioWorld world, DefaultMQProducer producer) throws Exception {
        TreeSet<String> names = new TreeSet<>();
        for (MessageQueue queue : producer.fetchPublishMessageQueues(world.topic())) {
            names.add(queue.getBrokerName());
        }
        return names;
    }

    private static void say(String what) {
        Lines.of(what).print();
        System.out.flush();
    }
}
