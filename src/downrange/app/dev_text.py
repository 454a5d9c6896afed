"""What `downrange dev` prints when it is ready: addresses, and code to paste."""

from typing import Final

import msgspec


class DevAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything is; also the fields of the line for scripts."""

    name_servers: str
    brokers: dict[str, str]
    data: str
    is_temporary: bool
    process_id: int
    http: str | None = None


_WELCOME: Final = """\
downrange dev is ready.

  name server   {name_servers}
{brokers}
{http}  messages in   {data}{fate}

Clients are told to connect to {host}. If they cannot reach it (from another
machine, or from outside a container), say which address they can:
  downrange dev --advertise ADDRESS

Python
  import downrange

  async with downrange.connect("{name_servers}") as mq:
      await mq.send("orders", b"hello")
      async for message in mq.consume("orders", group="billing", start_at="first"):
          print(message.body)

Java (rocketmq-client)
  DefaultMQProducer producer = new DefaultMQProducer("billing");
  producer.setNamesrvAddr("{name_servers}");
  producer.start();
  producer.send(new Message("orders", "hello".getBytes()));

mqadmin
  mqadmin clusterList -n {name_servers}
  mqadmin topicList -n {name_servers}

Stop with Ctrl-C.
"""


def json_line(addresses: DevAddresses) -> str:
    """All addresses in one line, for scripts."""
    return msgspec.json.encode(addresses).decode()


def welcome(addresses: DevAddresses) -> str:
    """All addresses for people."""
    return _WELCOME.format(
        name_servers=addresses.name_servers,
        brokers="\n".join(f"  {name:<13} {at}" for name, at in addresses.brokers.items()),
        http="" if addresses.http is None else f"  metrics       {addresses.http}/metrics\n",
        data=addresses.data,
        fate=" (deleted at the end)" if addresses.is_temporary else "",
        host=addresses.name_servers.rpartition(":")[0],
    ).rstrip("\n")
