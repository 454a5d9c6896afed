import java.util.List;
import org.apache.rocketmq.client.impl.CommunicationMode;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;

/** Sends what the producer's own checks refuse and the broker stores: long topic names, empty bodies in a batch. */
final class RawSend {
    private static final long TIMEOUT_MS = 10_000;
    private static final int QUEUES_OF_A_NEW_TOPIC = 1;

    static SendResult send(DefaultMQProducer producer, String brokerAddress, Message message, int queueId)
        throws Exception {
        return send(producer, brokerAddress, message, queueId, false);
    }

    /** The broker of 5.5.0 fails on a single message without a body, but takes it as part of a batch. */
    static SendResult sendBatch(DefaultMQProducer producer, String brokerAddress, List<Message> messages, int queueId)
        throws Exception {
        MessageBatch batch = MessageBatch.generateFromList(messages);
        batch.setBody(batch.encode());
        return send(producer, brokerAddress, batch, queueId, true);
    }

    private static SendResult send(DefaultMQProducer producer, String brokerAddress, Message message, int queueId,
        boolean batch) throws Exception {
        DefaultMQProducerImpl inner = producer.getDefaultMQProducerImpl();
        MQClientInstance client = inner.getMqClientFactory();
        SendMessageRequestHeader header = new SendMessageRequestHeader();
        header.setProducerGroup(producer.getProducerGroup());
        header.setTopic(message.getTopic());
        header.setDefaultTopic(producer.getCreateTopicKey());
        header.setDefaultTopicQueueNums(QUEUES_OF_A_NEW_TOPIC);
        header.setQueueId(queueId);
        header.setSysFlag(0);
        header.setBornTimestamp(System.currentTimeMillis());
        header.setFlag(message.getFlag());
        header.setProperties(MessageDecoder.messageProperties2String(message.getProperties()));
        header.setReconsumeTimes(0);
        header.setUnitMode(false);
        header.setBatch(batch);
        return client.getMQClientAPIImpl().sendMessage(brokerAddress, "broker-a", message, header, TIMEOUT_MS,
            CommunicationMode.SYNC, null, inner);
    }
}
