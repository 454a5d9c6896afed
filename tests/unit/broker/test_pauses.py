"""A broker that was held up for a while refuses nobody when it goes on."""

import asyncio
import threading
import time

from downrange import sync
from downrange.embedded.dev_cluster import DevCluster
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.send import SendRequestV2
from downrange.protocol.request_codes import RequestCode
from downrange.remoting.client import RemotingClient
from downrange.remoting.network import TcpNetwork

PAUSE_S = 0.35  # longer than waitTimeMillsInSendQueue
PAUSES = 3
SENDERS = 8


async def _block() -> None:
    threading.Event().wait(PAUSE_S)  # the loop stands still, as in a long garbage collection


async def _codes(address: str, is_over: threading.Event) -> list[int]:
    header = SendRequestV2(
        producer_group="producers",
        topic="orders",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties="UNIQ_KEY\x017F000001000100000000000000000ABC\x02",
    )
    fields = encode_header(header)
    codes: list[int] = []

    async def send() -> None:
        client = RemotingClient(TcpNetwork())
        while not is_over.is_set():
            answer = await client.call(
                address, RequestCode.SEND_MESSAGE_V2, fields, b"x", timeout_s=10
            )
            codes.append(answer.code)
        client.close()

    await asyncio.gather(*(send() for _ in range(SENDERS)))
    return codes


def test_no_send_is_refused_after_pauses_of_the_event_loop() -> None:
    with DevCluster() as cluster:
        with sync.connect(cluster.name_servers) as mq:
            mq.send("orders", b"the topic exists")
        is_over = threading.Event()
        codes: list[int] = []

        def produce() -> None:
            codes.extend(asyncio.run(_codes(cluster.broker_addresses["broker-a"], is_over)))

        producer = threading.Thread(target=produce)
        producer.start()
        for _ in range(PAUSES):
            cluster.run(_block())
        is_over.set()
        producer.join()
        view = cluster.broker().view()
        assert view is not None
        assert view.watch.beyond_count >= PAUSES - 1, "the pauses were seen"
    assert len(codes) >= SENDERS
    assert set(codes) == {0}
