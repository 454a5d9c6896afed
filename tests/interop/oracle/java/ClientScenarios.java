import java.util.HashMap;
import java.util.Map;

/**
 * One scenario of an ordinary client against a running cluster.
 *
 * Arguments: scenario, nameServer, prefix (of topic and group names). Prints one line with what was observed; a
 * scenario that waits in vain fails.
 */
public final class ClientScenarios {
    interface Scenario {
        void run(ScenarioWorld world) throws Exception;
    }

    private static Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new HashMap<>();
        all.put("sync", SendScenarios::sync);
        all.put("async", SendScenarios::async);
        all.put("one-way", SendScenarios::oneWay);
        all.put("batch", SendScenarios::batch);
        all.put("large", SendScenarios::large);
        all.put("delayed", SendScenarios::delayed);
        all.put("transaction", TalkScenarios::transaction);
        all.put("request-reply", TalkScenarios::requestReply);
        all.put("trace", TalkScenarios::trace);
        all.put("concurrently", ConsumeScenarios::concurrently);
        all.put("orderly", ConsumeScenarios::orderly);
        all.put("read-in-order", ConsumeScenarios::readInOrder);
        all.put("orderly-retry", ConsumeScenarios::orderlyRetry);
        all.put("broadcasting", ConsumeScenarios::broadcasting);
        all.put("tags", ConsumeScenarios::tags);
        all.put("sql92", ConsumeScenarios::sql92);
        all.put("retry-dlq", ConsumeScenarios::retryThenDeadLetter);
        all.put("two-members", ConsumeScenarios::twoMembers);
        all.put("lite-assign", OffsetScenarios::liteAssign);
        all.put("lite-subscribe", OffsetScenarios::liteSubscribe);
        all.put("reset", OffsetScenarios::reset);
        all.put("resume", OffsetScenarios::resume);
        all.put("query", OffsetScenarios::query);
        all.put("spread", MixedScenarios::spread);
        all.put("survive", MixedScenarios::survive);
        return all;
    }

    public static void main(String[] words) {
        Lines.runAndExit(() -> {
            System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
            Map<String, String> arguments = Lines.arguments(words);
            ScenarioWorld world = new ScenarioWorld(arguments.get("nameServer"), arguments.get("prefix"));
            scenarios().get(arguments.get("scenario")).run(world);
            world.print();
        });
    }
}
