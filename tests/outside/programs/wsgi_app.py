"""A web application for a WSGI server: workers send and consume with a client made before they are.

With --preload this module runs in the parent, which sends a message before it forks: its I/O thread
and its connections are there, and of no use to the workers.
"""

import json
import os
import threading
from collections.abc import Callable, Iterable

from downrange import ClientSettings, ClientStateError, Message, sync

got: list[str] = []
mq = sync.connect(os.environ["NAME_SERVER"])
mq.open()
topic = os.environ["TOPIC"]
loaded_by = os.getpid()
mq.send(topic, b"loaded")
client = ClientSettings(name_servers=os.environ["NAME_SERVER"], instance_name="own")
producer = sync.Producer("wsgi-producer", client=client)
producer.start()


def _consume() -> None:
    for message in mq.consume(topic, group=f"{topic}-workers", start_at="first"):
        got.append(message.body.decode())  # noqa: PERF401 - seen while it grows


def _start_consuming() -> None:
    if not any(thread.name == "consume" for thread in threading.enumerate()):
        threading.Thread(target=_consume, name="consume", daemon=True).start()


def _parents_producer() -> str:
    """What a producer of the parent says in a worker."""
    try:
        return producer.send(Message(topic, b"from the parent's producer")).status.value
    except ClientStateError as error:
        return str(error)


def app(
    environ: dict[str, str], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    """POST sends a message, GET shows what this worker has got."""
    _start_consuming()
    answer: dict[str, object] = {"pid": os.getpid(), "loaded_by": loaded_by, "got": got}
    if environ["REQUEST_METHOD"] == "POST":
        body = f"sent by {os.getpid()}".encode()
        answer["sent"] = mq.send(topic, body).status.value
        answer["producer"] = _parents_producer()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
