"""Forks and the end of the interpreter, in processes of their own against a real server."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from processes import start_broker, start_name_server

SECONDS_MAX = 60.0

FORKS = """
import os, sys, threading
from downrange import ClientSettings, Message, sync
from downrange.client.errors import ClientStateError

mq = sync.connect(sys.argv[1])
mq.open()
producer = sync.Producer("p", client=ClientSettings(name_servers=sys.argv[1]))
producer.start()
stream = mq.consume("orders", group="g", idle_timeout_s=1)
mq.send("orders", b"parent")
child = os.fork()
if child == 0:
    try:
        producer.send(Message("orders", b"child"))
    except ClientStateError as error:
        assert "make and start a new one" in str(error), error
    else:
        raise SystemExit("no error")
    try:
        list(stream)
    except ClientStateError as error:
        assert "make and start a new one" in str(error), error
    else:
        raise SystemExit("no error")
    begin = threading.Barrier(8)
    def send():
        begin.wait(10)
        receipts.append(mq.send("orders", b"child"))
    receipts = []
    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(receipts) == 8, "all threads of the child share the client that one of them opens"
    mq.close()
    sys.exit(0)
status = os.waitpid(child, 0)[1]
assert status == 0, status
mq.send("orders", b"parent again")
producer.send(Message("orders", b"parent too"))
print("all well")
"""

EXITS = """
import sys, threading
from downrange import ClientSettings, PushConsumerSettings, ConsumeFromWhere, sync

got = threading.Event()
mq = sync.connect(sys.argv[1])
mq.open()
mq.send("orders", b"x")
consumer = sync.PushConsumer(
    "exits",
    client=ClientSettings(name_servers=sys.argv[1]),
    settings=PushConsumerSettings(consume_from_where=ConsumeFromWhere.FIRST_OFFSET),
)
consumer.subscribe("orders")
consumer.listen(lambda batch, context: got.set())
consumer.start()
assert got.wait(30)
print("leaving without closing anything")
"""


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("servers")
    with start_name_server(folder / "ns") as server:
        settings = {"mappedFileSizeCommitLog": str(1 << 20)}
        with start_broker(folder / "broker", server.address, settings):
            yield server.address


def run_program(program: str, address: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, address],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_a_fork_opens_anew_or_says_what_to_do(name_server: str) -> None:
    done = run_program(FORKS, name_server)
    assert (done.returncode, done.stdout) == (0, "all well\n"), done.stderr


def test_a_program_that_closes_nothing_ends_in_good_order(name_server: str) -> None:
    done = run_program(EXITS, name_server)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "leaving without closing anything\n"
    assert done.stderr == ""
