import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.exception.MQClientException;

/** One JSON object per line on standard output, and the few digests the lines carry. */
final class Lines {
    private static final long ROUTE_SECONDS_MAX = 40;
    private static final long ROUTE_POLL_MS = 100;

    private final StringBuilder text = new StringBuilder("{");

    static Lines of(String kind) {
        return new Lines().put("kind", kind);
    }

    Lines put(String name, String value) {
        separate(name);
        quote(value);
        return this;
    }

    Lines put(String name, long value) {
        separate(name);
        text.append(value);
        return this;
    }

    Lines put(String name, Map<String, String> values) {
        separate(name);
        text.append('{');
        boolean first = true;
        for (Map.Entry<String, String> entry : new TreeMap<>(values).entrySet()) {
            if (!first) {
                text.append(',');
            }
            first = false;
            quote(entry.getKey());
            text.append(':');
            quote(entry.getValue());
        }
        text.append('}');
        return this;
    }

    Lines put(String name, long[] values) {
        separate(name);
        text.append('[');
        for (int i = 0; i < values.length; i++) {
            text.append(i == 0 ? "" : ",").append(values[i]);
        }
        text.append(']');
        return this;
    }

    /** Lines of many threads never mix: each is written by one call, line end included. */
    void print() {
        byte[] line = text.append("}\n").toString().getBytes(StandardCharsets.UTF_8);
        synchronized (System.out) {
            System.out.write(line, 0, line.length);
        }
    }

    static Map<String, String> arguments(String[] words) {
        Map<String, String> found = new HashMap<>();
        for (String word : words) {
            int cut = word.indexOf('=');
            found.put(word.substring(0, cut), word.substring(cut + 1));
        }
        return found;
    }

    interface Work {
        void run() throws Exception;
    }

    /** Client threads outlive a failed main thread, so the end of the program is always spelled out. */
    static void runAndExit(Work work) {
        int code = 0;
        try {
            work.run();
        } catch (Throwable failure) {
            failure.printStackTrace();
            code = 1;
        }
        System.out.flush();
        Runtime.getRuntime().halt(code);
    }

    /** Repeats what fails while a broker's topics are not yet known to the name server. */
    static <T> T await(Callable<T> attempt) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(ROUTE_SECONDS_MAX);
        while (true) {
            try {
                return attempt.call();
            } catch (MQClientException error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(ROUTE_POLL_MS);
            }
        }
    }

    static long crc(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body, 0, body.length);
        return crc.getValue() & 0x7FFFFFFF;
    }

    static String sha1(byte[] body) throws Exception {
        StringBuilder hex = new StringBuilder();
        for (byte one : MessageDigest.getInstance("SHA-1").digest(body)) {
            hex.append(Character.forDigit((one >> 4) & 15, 16)).append(Character.forDigit(one & 15, 16));
        }
        return hex.toString();
    }

    private void separate(String name) {
        if (text.length() > 1) {
            text.append(',');
        }
        quote(name);
        text.append(':');
    }

    private void quote(String value) {
        if (value == null) {
            text.append("null");
            return;
        }
        text.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < ' ') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        text.append('"');
    }
}
