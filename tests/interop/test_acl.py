"""Our client at an Apache broker that wants every request signed."""

import asyncio
from collections.abc import Iterator

import pytest
from interop import apache
from interop.client_cluster import APACHE_SETTINGS

from downrange.client.acl_signature import Credentials
from downrange.client.client import Client, connect
from downrange.client.errors import BrokerRefusal
from downrange.client.settings import ClientSettings, ProducerSettings

pytestmark = pytest.mark.interop

TOPIC = "signed"
RIGHT = Credentials(access_key="admin", secret_key="a-secret-of-sixteen")
WRONG_SECRET = Credentials(access_key="admin", secret_key="another-secret")
STRANGER = Credentials(access_key="stranger", secret_key="a-secret-of-sixteen")
SECONDS_MAX = 120.0
NO_PERMISSION = 16
SIGNED = {
    "authenticationEnabled": "true",
    "authenticationProvider": (
        "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider"
    ),
    "authenticationMetadataProvider": (
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "initAuthenticationUser": '{"username":"admin","password":"a-secret-of-sixteen"}',
    "innerClientAuthenticationCredentials": (
        '{"accessKey":"admin","secretKey":"a-secret-of-sixteen"}'
    ),
}


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("acl")
    with apache.start_name_server(folder / "names") as names:
        settings = {**APACHE_SETTINGS, **SIGNED, "authConfigPath": str(folder / "auth")}
        plan = apache.plan_broker(folder / "broker", folder / "store", names.address, settings)
        with apache.start_broker(plan):
            yield names.address


def _connect(name_server: str, credentials: Credentials | None) -> Client:
    return connect(
        settings=ClientSettings(
            name_servers=name_server, client_ip="127.0.0.1", credentials=credentials
        ),
        producer=ProducerSettings(send_timeout_s=10.0),
    )


def test_who_signs_sends_and_consumes(name_server: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS_MAX), _connect(name_server, RIGHT) as mq:
            for number in range(8):
                receipt = await mq.send(TOPIC, b"%d" % number, key="schlüssel", tag="new")
                assert receipt.status.value == "SEND_OK"
            bodies: list[bytes] = []
            async with mq.consume(TOPIC, group="signers", start_at="first") as stream:
                async for message in stream:
                    bodies.append(message.body)
                    if len(bodies) == 8:
                        stream.ack(message)
                        break
            assert sorted(bodies) == [b"%d" % number for number in range(8)]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("credentials", "text"),
    [
        (WRONG_SECRET, "check signature failed"),
        (STRANGER, "User:stranger is not found"),
        (None, "username cannot be null"),
    ],
    ids=["wrong secret", "unknown user", "unsigned"],
)
def test_who_signs_wrongly_gets_one_clear_error(
    name_server: str, credentials: Credentials | None, text: str
) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS_MAX), _connect(name_server, credentials) as mq:
            with pytest.raises(BrokerRefusal) as failure:
                await mq.send(TOPIC, b"x")
            assert text in str(failure.value)
            assert failure.value.code == NO_PERMISSION
            if credentials is not None:
                assert credentials.secret_key not in str(failure.value)

    asyncio.run(main())
