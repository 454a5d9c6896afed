"""UPDATE_BROKER_CONFIG on a running broker: what it says yes to without a remark works at once."""

import asyncio
from pathlib import Path

import pytest
from unit.broker.one_broker import OneBroker, pass_time, records

from downrange.broker.handlers.admin.config import FIXED
from downrange.broker.setting_changes import LIVE_BROKER, LIVE_STORE
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.model.topics import Permission
from downrange.protocol.bodies.registration import Registration, decode_registration
from downrange.protocol.command import Command, response
from downrange.protocol.headers.fields import encode_header
from downrange.protocol.headers.send import SendBackRequest
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.server import RemotingServer
from downrange.runtime.service import Supervisor
from downrange.runtime.settings import properties_of
from downrange.testing.virtual_time import START_MS, run

HALF = "TRAN_MSG\x01true\x02PGROUP\x01payers\x02UNIQ_KEY\x01AA\x02"
# Read once, when the broker starts; changing one is answered with a remark that says so.
AT_NEXT_START = {
    "groupsMax", "queuesMax", "topicsMax",
    "accessMessageInMemoryMaxRatio", "adminBrokerThreadPoolQueueCapacity", "bindAddress",
    "brokerIP1", "brokerIP2", "brokerTopicEnable", "bulkPullBytesMax", "bulkPullCountMax",
    "checkCRCOnRecover", "clusterTopicEnable",
    "defaultTopicQueueNums", "enabledAppendPropCRC", "flushConsumerOffsetInterval", "flushDiskType",
    "flushIntervalCommitLog", "forceVerifyPropCRC", "haListenPort", "listenPort",
    "loadBalanceThreadPoolQueueCapacity",
    "messageDelayLevel", "messageIndexEnable", "msgTraceTopicName", "regionId",
    "registerNameServerPeriod", "replyThreadPoolQueueCapacity", "scrubBytesPerSecond",
    "serverChannelMaxIdleTimeSeconds", "traceOn", "traceTopicEnable", "transactionCheckInterval",
    "useServerSideResetOffset",
}  # fmt: skip


async def update(broker: OneBroker, text: str) -> Command:
    return await broker.call(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())


async def update_live(broker: OneBroker, text: str) -> None:
    answer = await update(broker, text)
    assert (answer.code, answer.remark) == (0, None)


def test_every_setting_is_live_fixed_or_said_to_wait_for_the_next_start() -> None:
    broker, store = (
        properties_of(BrokerSettings()).keys(),
        properties_of(StoreFileSettings()).keys(),
    )
    live = LIVE_BROKER | LIVE_STORE
    assert broker >= LIVE_BROKER
    assert store >= LIVE_STORE
    assert not live & FIXED
    assert set(broker | store) - live - FIXED == AT_NEXT_START


def test_a_setting_for_the_next_start_is_said_to_be_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            answer = await update(broker, "flushDiskType=SYNC_FLUSH\nfileReservedTime=1")
            assert (answer.code, answer.remark) == (
                0,
                "saved, takes effect at the next start: flushDiskType",
            )

    run(main())


class NameServerStub:
    """Keeps what brokers register."""

    def __init__(self) -> None:
        self.registered: list[Registration] = []

    def register(self, request: Command, _: Connection) -> Answer:
        self.registered.append(decode_registration(request.body or b"", compressed=False))
        return response(request, ResponseCode.SUCCESS)

    def unregister(self, request: Command, _: Connection) -> Answer:
        return response(request, ResponseCode.SUCCESS)

    async def listen(self, broker: OneBroker, port: int) -> None:
        routes: dict[int, Handler] = {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
        }
        server = RemotingServer(broker.network, Supervisor(lambda *_: None), routes)
        await server.listen("127.0.0.1", port)

    def perm(self, topic: str) -> int:
        return self.registered[-1].topic_config_serialize_wrapper.topic_config_table[topic].perm


def test_a_broker_without_write_permission_tells_the_name_servers(tmp_path: Path) -> None:
    async def main() -> None:
        name_server, other = NameServerStub(), NameServerStub()
        settings = BrokerSettings(
            address="127.0.0.1", broker_name="b1", name_servers="127.0.0.1:9876"
        )
        broker = OneBroker(tmp_path, settings)
        await name_server.listen(broker, 9876)
        await other.listen(broker, 9877)
        async with broker:
            await broker.send("orders")
            assert name_server.perm("orders") == Permission.READ_WRITE
            version = name_server.registered[-1].topic_config_serialize_wrapper.data_version
            await update_live(broker, "brokerPermission=4")
            await pass_time(0.1)
            assert name_server.perm("orders") == Permission.READ
            later = name_server.registered[-1].topic_config_serialize_wrapper.data_version
            assert later.counter > version.counter
            (record,) = records(await broker.pull("orders"))
            back = SendBackRequest(offset=record.physical_offset, group="consumers", delay_level=0)
            refused = await broker.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)
            assert refused.code == ResponseCode.NO_PERMISSION
            await update_live(broker, "brokerPermission=2")
            assert (await broker.pull("orders")).code == ResponseCode.NO_PERMISSION
            await update_live(broker, "brokerPermission=6\nnamesrvAddr=127.0.0.1:9877")
            await pass_time(0.1)
            assert other.perm("orders") == Permission.READ_WRITE
            assert (await broker.pull("orders")).code == 0

    run(main())


def test_topics_and_groups_by_use_can_be_switched_off_and_on(tmp_path: Path) -> None:
    async def main() -> None:
        off = BrokerSettings(address="127.0.0.1", broker_name="b1", auto_create_topics=False)
        async with OneBroker(tmp_path, off) as broker:
            assert (await broker.send("orders")).code == ResponseCode.TOPIC_NOT_EXIST
            await update_live(broker, "autoCreateTopicEnable=true")
            assert (await broker.send("orders")).code == 0
            await update_live(
                broker, "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false"
            )
            assert (await broker.send("other")).code == ResponseCode.TOPIC_NOT_EXIST
            answer = await broker.pull("orders", consumer_group="new")
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    run(main())


def test_sends_follow_their_switches(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders")
            await update_live(broker, "rejectTransactionMessage=true")
            half = await broker.send("orders", properties=HALF, sys_flag=4)
            assert half.code == ResponseCode.NO_PERMISSION
            await update_live(broker, "rejectTransactionMessage=false")
            assert (await broker.send("orders", properties=HALF, sys_flag=4)).code == 0
            await update_live(broker, f"startAcceptSendRequestTimeStamp={START_MS + 60_000}")
            refused = await broker.send("orders")
            assert "broker unable to service, until" in (refused.remark or "")
            await pass_time(61)
            assert (await broker.send("orders")).code == 0
            await update_live(broker, "maxMessageSize=10")
            assert (await broker.send("orders", b"x" * 11)).code == ResponseCode.MESSAGE_ILLEGAL
            assert (await broker.send("orders", b"x" * 10)).code == 0

    run(main())


def test_pulls_follow_their_switches(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await broker.send("orders")
            await update_live(broker, "longPollingEnable=false\nshortPollingTimeMills=2000")
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            answer = await broker.pull("orders", 1, sys_flag=6, suspend_timeout_millis=15_000)
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert loop.time() - started_s == pytest.approx(2, abs=0.6)

            async def pull_by_sql() -> int:
                answer = await broker.pull("orders", subscription="a > 1", expression_type="SQL92")
                return answer.code

            assert await pull_by_sql() == ResponseCode.SYSTEM_ERROR
            await update_live(broker, "enablePropertyFilter=true")
            assert await pull_by_sql() == ResponseCode.PULL_RETRY_IMMEDIATELY
            await update_live(broker, "longPollingEnable=true\npullThreadPoolQueueCapacity=1")
            connection = await broker.connect()
            fields = encode_header(broker.pull_header("orders", 1, sys_flag=6))
            waits = asyncio.ensure_future(
                connection.call(RequestCode.PULL_MESSAGE, fields, timeout_s=60)
            )
            await pass_time(0.1)
            refused = await broker.pull("orders", 1, sys_flag=6)
            assert refused.code == ResponseCode.SYSTEM_BUSY
            await waits

    run(main())


def test_files_follow_the_rules_of_retention(tmp_path: Path) -> None:
    async def main() -> None:
        async with OneBroker(tmp_path) as broker:
            await update_live(
                broker, "diskMaxUsedSpaceRatio=10\ndiskSpaceCleanForciblyRatio=30\n"
                "diskSpaceWarningLevelRatio=35\ncleanFileForciblyEnable=false\nfileReservedTime=1"
            )  # fmt: skip
            store = broker.broker._store
            assert store is not None
            assert store.settings.retention.file_reserved_hours == 1
            assert store.settings.retention.clean_ratio == pytest.approx(0.10)
            assert store.retention._settings is store.settings.retention

    run(main())
