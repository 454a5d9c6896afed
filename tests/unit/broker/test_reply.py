"""A reply reaches the client that waits for it, and who replied is told whether it did."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.broker.bench import (
    Bench,
    captured_records,
    captured_requests,
    connection_pair,
    recorder,
    without_place,
)

from downrange.broker.creation_wait import CreationWait
from downrange.broker.handlers.reply import PUSH_TIMEOUT_S, ReplyHandler
from downrange.model.topics import TopicConfig
from downrange.protocol.command import Command, response
from downrange.protocol.properties import decode_properties, decode_property_text
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection
from downrange.remoting.errors import Refused
from downrange.testing.virtual_time import run

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
STORE_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
FIELDS = {
    "a": "server",
    "b": REPLY_TOPIC,
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1234",
    "h": "5",
    "i": "UNIQ_KEY\x01ID\x02CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asker",
    "j": "0",
    "k": "false",
    "m": "false",
}


class Rig:
    """A handler, and a client that waits for replies."""

    def __init__(
        self,
        root: Path,
        answer: Callable[[Command], Answer] = lambda to: response(to, ResponseCode.SUCCESS),
        *,
        stores_replies: bool = True,
    ) -> None:
        self.bench = Bench(root)
        self.pushed: list[Command] = []
        self.client_id = "asker"
        self.connection: Connection | None = None
        self._answer = answer
        self.handler = ReplyHandler(
            self,
            self,
            CreationWait(self, self, self.save),
            self.bench.writer,
            self.bench.stats,
            self.bench.clock,
            random.Random(1),
            store_host=STORE_HOST,
            region="DefaultRegion",
            traces=True,
            stores_replies=stores_replies,
        )

    async def save(self) -> None:
        """Everything is on disk."""

    def is_durable(self, _name: str) -> bool:
        return True

    def takes(self, _topic: str, _queue_id: int) -> bool:
        return True

    def get(self, topic: str) -> TopicConfig | None:
        if topic != REPLY_TOPIC:
            return None
        return TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)

    def create_for_send(self, *_: object) -> None:
        return None

    def find(self, client_id: str) -> Connection | None:
        return self.connection if client_id == self.client_id else None

    def reply(self, fields: dict[str, str], body: bytes | None = b"answer") -> Command:
        """What who replies is told; the client that waits is connected."""

        async def main() -> Command:
            code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
            # Both ends of a connection live on the loop of this call.
            waiting, self.connection = await connection_pair(
                {code: recorder(self.pushed, self._answer)}
            )
            replier, at_broker = await connection_pair()
            request = Command(code=RequestCode.SEND_REPLY_MESSAGE_V2, ext_fields=fields, body=body)
            answer = await self.handler.reply(request, at_broker)
            assert isinstance(answer, Command)
            assert not waiting.is_closed
            assert not replier.is_closed
            return answer

        answer = run(main())
        self.bench.settle()
        return answer


def test_a_reply_is_pushed_and_stored(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    answer = rig.reply(FIELDS)
    (stored,) = rig.bench.records(REPLY_TOPIC)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert answer.ext_fields == {
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "0",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert (stored.body, stored.flag, stored.born_timestamp) == (b"answer", 5, 1234)
    (pushed,) = rig.pushed
    assert pushed.body == b"answer"
    assert rig.bench.stats.put_by_topic[REPLY_TOPIC].count == 1


def test_push_and_copy_are_those_of_rocketmq(tmp_path: Path) -> None:
    requests = captured_requests(RequestCode.SEND_REPLY_MESSAGE_V2)
    pushes = captured_requests(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    copies = [r for r in captured_records() if r.topic == REPLY_TOPIC.encode()]
    compared = 0
    for theirs in pushes:
        assert theirs.ext_fields is not None
        their_text = decode_property_text(theirs.ext_fields["properties"])
        key = their_text["UNIQ_KEY"]
        fields = next(
            c.ext_fields for c in requests if c.ext_fields is not None and key in c.ext_fields["i"]
        )
        copy = next(c for c in copies if decode_properties(c.properties).get("UNIQ_KEY") == key)
        compared += 1
        rig = Rig(tmp_path / str(compared))
        rig.bench.clock.jump_to(int(theirs.ext_fields["storeTimestamp"]))
        rig.client_id = their_text["REPLY_TO_CLIENT"]
        rig.reply(fields, theirs.body)
        (ours,) = rig.pushed
        assert ours.ext_fields is not None
        assert not ours.is_one_way
        assert ours.body == theirs.body
        assert ours.ext_fields.keys() == theirs.ext_fields.keys()
        assert decode_property_text(ours.ext_fields["properties"]) == their_text | {
            "PUSH_REPLY_TIME": theirs.ext_fields["storeTimestamp"]
        }
        for name in ours.ext_fields.keys() - {"properties", "bornHost"}:
            assert ours.ext_fields[name] == theirs.ext_fields[name], name
        (stored,) = rig.bench.records(REPLY_TOPIC)
        assert decode_properties(stored.properties) == decode_properties(copy.properties)
        assert without_place(stored)._replace(properties=b"", born_host=b"") == without_place(
            copy
        )._replace(properties=b"", born_host=b"")
    assert compared >= 2


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("UNIQ_KEY\x01ID\x02", "reply message properties[REPLY_TO_CLIENT] is null"),
        (
            "REPLY_TO_CLIENT\x01nobody\x02",
            "push reply message fail, channel of <nobody> not found.",
        ),
    ],
)
def test_a_reply_without_a_receiver_is_stored_and_reported(
    tmp_path: Path, text: str, remark: str
) -> None:
    rig = Rig(tmp_path)
    answer = rig.reply(FIELDS | {"i": text})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert answer.ext_fields is not None
    assert answer.ext_fields["msgId"] == "7F00000100002A9F0000000000000000"
    assert len(rig.bench.records(REPLY_TOPIC)) == 1


def test_a_receiver_that_refuses_is_reported(tmp_path: Path) -> None:
    rig = Rig(tmp_path, lambda to: response(to, ResponseCode.SYSTEM_ERROR, remark="too late"))
    answer = rig.reply(FIELDS)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "push reply message to asker fail. too late",
    )


def test_a_receiver_that_is_silent_is_not_waited_for_longer_than_ten_seconds(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, lambda _: None)
    answer = rig.reply(FIELDS)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"{PUSH_TIMEOUT_S} s" in (answer.remark or "")


def test_replies_need_not_be_stored(tmp_path: Path) -> None:
    rig = Rig(tmp_path, stores_replies=False)
    answer = rig.reply(FIELDS)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields is not None
    assert answer.ext_fields["msgId"] == "0"
    assert rig.bench.records(REPLY_TOPIC) == []


def test_a_reply_that_cannot_be_stored_has_arrived_all_the_same(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.bench.fill_disk(is_full=True)
    assert rig.reply(FIELDS).code == ResponseCode.SUCCESS
    assert len(rig.pushed) == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"b": "no such topic"}, ResponseCode.INVALID_PARAMETER),
        ({"b": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"e": "1"}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_reply_to_a_wrong_topic_or_queue_is_refused(
    tmp_path: Path, changes: dict[str, str], code: int
) -> None:
    rig = Rig(tmp_path)
    with pytest.raises(Refused) as refusal:
        rig.reply(FIELDS | changes)
    assert refusal.value.code == code
    assert rig.pushed == []
