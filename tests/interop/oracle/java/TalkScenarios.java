import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenarios in which the broker speaks to the producer too: transactions, replies; and traces. */
final class TalkScenarios {
    private static final String TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC";

    private TalkScenarios() {
    }

    static void transaction(ScenarioWorld world) throws Exception {
        world.createTopic(world.producer());
        Set<String> checked = ConcurrentHashMap.newKeySet();
        TransactionMQProducer producer = new TransactionMQProducer(world.group("transactions"));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String text = ScenarioWorld.text(message);
                boolean again = !checked.add(text);
                if (text.equals("unknown-twice") && !again) {
                    return LocalTransactionState.UNKNOW;
                }
                boolean bad = text.equals("unknown-rollback");
                return bad ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        world.start(producer);
        Seen seen = new Seen();
        DefaultMQPushConsumer consumer = world.fromFirst(world.consumer("consumer"));
        consumer.subscribe(world.topic(), "tag");
        seen.listen(consumer);
        send(world, producer, "rollback", LocalTransactionState.ROLLBACK_MESSAGE);
        send(world, producer, "commit", LocalTransactionState.COMMIT_MESSAGE);
        send(world, producer, "unknown-rollback", LocalTransactionState.UNKNOW);
        send(world, producer, "unknown-commit", LocalTransactionState.UNKNOW);
        send(world, producer, "unknown-twice", LocalTransactionState.UNKNOW);
        seen.awaitDistinct(3);
        ScenarioWorld.awaitTrue("three checks", () -> checked.size() == 3);
        world.saw("consumed", seen.distinct());
        world.saw("checked", new TreeSet<>(checked));
        MessageExt one = seen.all().get(0);
        world.saw("topicIsReal", one.getTopic().equals(world.topic()));
        world.saw("transactionIdIsMessageId", one.getMsgId().equals(one.getTransactionId()));
        consumer.shutdown();
        producer.shutdown();
    }

    private static void send(
            ScenarioWorld world, TransactionMQProducer producer, String text, LocalTransactionState state)
            throws Exception {
        SendResult result = producer.sendMessageInTransaction(world.message("tag", text), state);
        world.saw("status " + text, result.getSendStatus());
    }

    static void requestReply(ScenarioWorld world) throws Exception {
        DefaultMQProducer asker = world.producer();
        world.createTopic(asker);
        DefaultMQProducer answerer = world.start(new DefaultMQProducer(world.group("answerer")));
        DefaultMQPushConsumer server = world.fromFirst(world.consumer("server"));
        server.subscribe(world.topic(), "question");
        server.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            // The broker may not know the asker before its first heartbeat; then the question comes again.
            context.setDelayLevelWhenNextConsume(1);
            for (MessageExt message : messages) {
                byte[] answer = ScenarioWorld.bytes("answer to " + ScenarioWorld.text(message));
                try {
                    answerer.send(MessageUtil.createReplyMessage(message, answer));
                } catch (Exception error) {
                    error.printStackTrace();
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        server.start();
        Message reply = asker.request(world.message("question", "one"), ScenarioWorld.WAIT_MS);
        world.saw("sync", ScenarioWorld.text(reply));
        ConcurrentLinkedQueue<String> answers = new ConcurrentLinkedQueue<>();
        asker.request(world.message("question", "two"), new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                answers.add(ScenarioWorld.text(message));
            }

            @Override
            public void onException(Throwable error) {
                answers.add(error.toString());
            }
        }, ScenarioWorld.WAIT_MS);
        ScenarioWorld.awaitTrue("an answer", () -> !answers.isEmpty());
        world.saw("async", answers);
        server.shutdown();
        answerer.shutdown();
        asker.shutdown();
    }

    /** Producer and consumer report what they did to the trace topic; found by the key of the message. */
    static void trace(ScenarioWorld world) throws Exception {
        DefaultMQProducer producer = world.start(new DefaultMQProducer(world.group("producer"), true, null));
        world.createTopic(producer);
        SendResult result = producer.send(world.message("tag", "traced"));
        world.saw("traceOn", result.isTraceOn());
        Seen seen = new Seen();
        DefaultMQPushConsumer consumer =
                world.configure(new DefaultMQPushConsumer(world.group("consumer"), true, null));
        world.fromFirst(consumer).subscribe(world.topic(), "tag");
        seen.listen(consumer);
        seen.awaitDistinct(1);
        Set<String> wanted = Set.of("Pub", "SubBefore", "SubAfter");
        Set<String> kinds = ScenarioWorld.await("traces", () -> {
            Set<String> found = new TreeSet<>();
            for (MessageExt one : producer.queryMessage(TRACE_TOPIC, result.getMsgId(), 32, 0, Long.MAX_VALUE)
                    .getMessageList()) {
                for (String record : ScenarioWorld.text(one).split("\u0002")) {
                    if (record.contains(result.getMsgId())) {
                        found.add(record.split("\u0001")[0]);
                    }
                }
            }
            return found.containsAll(wanted) ? found : null;
        });
        world.saw("kinds", kinds);
        List<String> consumed = new ArrayList<>(seen.distinct());
        world.saw("consumed", consumed);
        consumer.shutdown();
        producer.shutdown();
    }
}
