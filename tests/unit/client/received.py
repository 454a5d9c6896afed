"""Messages as a pull brings them, for tests that do not care where from."""

from downrange.client.message import ReceivedMessage


def received(offset: int, body: bytes = b"body", *, topic: str = "orders") -> ReceivedMessage:
    return ReceivedMessage(
        topic=topic,
        body=body,
        flag=0,
        queue_id=0,
        queue_offset=offset,
        physical_offset=offset * 100,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host_bytes=bytes(8),
        store_timestamp_ms=0,
        store_host_bytes=bytes(8),
        reconsume_times=0,
        prepared_offset=0,
        store_size=100,
        body_crc=0,
        properties_text=b"",
    )


def offsets(messages: list[ReceivedMessage]) -> list[int]:
    return [message.queue_offset for message in messages]
