import java.lang.reflect.Field;
import java.util.Arrays;
import org.apache.rocketmq.common.message.MessageClientIDSetter;

/** Lets a client make message ids that name the loopback address instead of the machine it runs on. */
final class NeutralIds {
    private static final int DIGITS_BEHIND_ADDRESS = 2 * (2 + 4);

    static void use() throws Exception {
        Field field = MessageClientIDSetter.class.getDeclaredField("FIX_STRING");
        field.setAccessible(true);
        char[] digits = (char[]) field.get(null);
        int end = digits.length - DIGITS_BEHIND_ADDRESS;
        Arrays.fill(digits, 0, end, '0');
        if (end == 8) {
            digits[0] = '7';
            digits[1] = 'F';
        }
        digits[end - 1] = '1';
    }
}
