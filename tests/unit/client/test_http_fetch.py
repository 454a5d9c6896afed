"""The list of name servers by HTTP, from a server on the loopback address."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from downrange.client.http_fetch import fetch_text


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path.startswith("/rocketmq/nsaddr")
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(b"10.0.0.1:9876;10.0.0.2:9876\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_the_text_behind_an_address(address: str) -> None:
    text = asyncio.run(fetch_text(address + "/rocketmq/nsaddr-unit?nofix=1", 5))
    assert text == "10.0.0.1:9876;10.0.0.2:9876\n"


def test_what_cannot_be_fetched_is_an_error_of_the_system(address: str) -> None:
    for wrong in (address + "/nothing", "http://127.0.0.1:1/", "file:///etc/hosts"):
        with pytest.raises(OSError, match=r"404|refused|http://"):
            asyncio.run(fetch_text(wrong, 5))
