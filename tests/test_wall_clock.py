"""Wall time is read only for timestamps; every interval and deadline is monotonic."""

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "downrange"
WALL = {"wall_ms", "wall_ns"}

# Who may read the wall clock -> which timestamp it is for. Measuring an interval is not a reason.
READERS = {
    "admin/doctor.py": "compared with the broker's clock, to find a skew",
    "admin/reading.py": "version of a subscription, sent to the broker",
    "app/commands/consume.py": "a position that the user gave as time of storing",
    "app/commands/message.py": "a position that the user gave as time of storing",
    "app/commands/offset.py": "a position that the user gave as time of storing",
    "broker/clients.py": "last heartbeat as shown to administrators",
    "broker/delay.py": "compared with stored delivery times; stamps the offset file",
    "broker/delay_table.py": "stamps the data version",
    "broker/filter_table.py": "stored times of subscriptions, as in consumerFilter.json",
    "broker/group_table.py": "stamps the data version",
    "broker/half_messages.py": "born timestamp of records of the op topic",
    "broker/handlers/admin/config.py": "stamps the data version",
    "broker/handlers/admin/progress.py": "compared with the store time of the next message",
    "broker/handlers/admin/runtime_info.py": "time of the start as shown to administrators",
    "broker/handlers/reply.py": "sent as PUSH_REPLY_TIME; startAcceptSendRequestTimeStamp",
    "broker/handlers/send.py": "compared with startAcceptSendRequestTimeStamp",
    "broker/handlers/transaction.py": "compared with born timestamps",
    "broker/hooks.py": "time of arrival as shown to hooks",
    "broker/offset_table.py": "stamps the data version",
    "broker/rates.py": "finds the day that is over",
    "broker/topic_table.py": "stamps the data version",
    "broker/transaction_check.py": "compared with born timestamps",
    "client/consume_trace.py": "time of a trace line",
    "client/lite_pull_consumer.py": "version of a subscription; a starting point by store time",
    "client/process_queue.py": "turns monotonic times into those shown to administrators",
    "client/pulling_member.py": "time of the start as sent to administrators",
    "client/push_consumer.py": "version of a subscription",
    "client/push_parts.py": "a starting point by store time",
    "client/request_reply.py": "ARRIVE_TIME of a reply",
    "client/sender.py": "born timestamp",
    "client/trace.py": "time of a trace line",
    "monitoring/observed_broker.py": "compared with store times, to measure lag",
    "protocol/unique_id.py": "a part of each unique id",
    "store/appender.py": "store timestamp",
    "store/expiry_clock.py": "compared with the times of files",
    "store/key_index.py": "name of an index file",
    "store/missing_log.py": "name of the directory that derived files are moved to",
    "store/retention.py": "the hour of deleteWhen",
    "testing/driven_time.py": "a clock",
    "testing/rocketmq.py": "the time that a test asks for",
    "testing/virtual_time.py": "a clock",
}


def reads_the_wall_clock(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.Attribute) and node.attr in WALL for node in ast.walk(tree))


def test_each_reader_of_the_wall_clock_has_a_timestamp_to_make() -> None:
    readers = {
        str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if reads_the_wall_clock(path)
    }
    assert readers - {*READERS} == set(), "use the monotonic clock, or say which timestamp it is"
    assert {*READERS} - readers == set(), "the list may only name readers"
