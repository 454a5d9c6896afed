import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's admin tool for many commands in one JVM, and the clients whom the commands find at work.
 *
 * Reads one request a line from standard input, words separated by tabs: `mqadmin` and its arguments, or `load`, a label
 * and a name server. Prints one line for each, with everything that the command printed. Ends with its input.
 */
public final class AdminConsole extends MQAdminStartup {
    private static final long WAKE_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

    public static void main(String[] words) {
        Lines.runAndExit(() -> {
            NeutralIds.use();
            // A rebalance after the second heartbeat, not after twenty seconds.
            System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
            endWaitsOf(Thread.currentThread());
            BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                answer(line.split("\t", -1));
            }
        });
    }

    /**
     * A client that is shut down waits for a thread that looks up from its empty queue every three seconds. With a client
     * for each command that would be most of the time, so the thread is woken; one that shall not end goes on.
     */
    private static void endWaitsOf(Thread main) {
        Thread waker = new Thread(() -> {
            while (true) {
                LockSupport.parkNanos(WAKE_NANOS);
                boolean waits = Arrays.stream(main.getStackTrace())
                    .anyMatch(frame -> frame.getClassName().equals(ServiceThread.class.getName()));
                if (waits) {
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().startsWith("NettyEventExecutor"))
                        .forEach(Thread::interrupt);
                }
            }
        });
        waker.setDaemon(true);
        waker.start();
    }

    private static void answer(String[] words) throws Exception {
        PrintStream console = System.out;
        PrintStream complaints = System.err;
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        try {
            if (words[0].equals("load")) {
                AdminLoad.load(words[1], words[2]);
            } else {
                // Commands keep fields from one run to the next; the tool itself never runs two.
                SUB_COMMANDS.clear();
                main0(Arrays.copyOfRange(words, 1, words.length), null);
            }
        } finally {
            System.setOut(console);
            System.setErr(complaints);
        }
        Lines.of("answer")
            .put("output", output.toString(StandardCharsets.UTF_8))
            .put("errors", errors.toString(StandardCharsets.UTF_8))
            .print();
        System.out.flush();
    }
}
