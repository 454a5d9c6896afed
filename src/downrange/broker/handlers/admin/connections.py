"""Who is connected: the clients of consumer groups and of producer groups."""

from downrange.broker.clients import ConnectedClient
from downrange.broker.consumer_table import ConsumerTable
from downrange.broker.producer_table import ProducerTable
from downrange.protocol.bodies.connections import (
    AllProducers,
    ClientConnection,
    ConsumerConnections,
    ProducerConnections,
    ProducerInfo,
)
from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.command import Command, response
from downrange.protocol.headers.admin_group import (
    GetConsumerConnectionsRequest,
    GetProducerConnectionsRequest,
)
from downrange.protocol.headers.fields import decode_header
from downrange.protocol.json_text import write_json_steps
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.runtime.slices import Steps, in_slices


class ConnectionsHandler:
    """Answers from the tables of clients."""

    def __init__(self, consumers: ConsumerTable, producers: ProducerTable) -> None:
        self._consumers = consumers
        self._producers = producers

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.list_consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.list_producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.list_all_producers,
        }

    def list_consumers(self, request: Command, _: Connection) -> Answer:
        """The clients of a consumer group and what they subscribe."""
        group = decode_header(GetConsumerConnectionsRequest, request.ext_fields).consumer_group
        state = self._consumers.group(group)
        if state is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online"
            )
        body = ConsumerConnections(
            connection_set=tuple(map(_connection, state.clients.values())),
            subscription_table=state.subscriptions,
            consume_type=state.consume_type,
            message_model=state.message_model,
            consume_from_where=state.consume_from_where,
        )
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    def list_producers(self, request: Command, _: Connection) -> Answer:
        """The clients of a producer group."""
        group = decode_header(GetProducerConnectionsRequest, request.ext_fields).producer_group
        clients = self._producers.clients(group)
        if not clients:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        body = ProducerConnections(connection_set=tuple(map(_connection, clients)))
        return response(request, ResponseCode.SUCCESS, body=encode_body(body))

    async def list_all_producers(self, request: Command, _: Connection) -> Answer:
        """The clients of all producer groups."""
        producers = await in_slices(self._all_producers())
        body = await in_slices(write_json_steps(producers))
        return response(request, ResponseCode.SUCCESS, body=body)

    def _all_producers(self) -> Steps[AllProducers]:
        groups: dict[str, tuple[ProducerInfo, ...]] = {}
        for group in self._producers.groups():
            clients = tuple(map(_producer, self._producers.clients(group)))
            if clients:  # the last one may have left meanwhile
                groups[group] = clients
            yield
        return AllProducers(data=groups)


def _connection(client: ConnectedClient) -> ClientConnection:
    return ClientConnection(
        client_id=client.client_id,
        client_addr=client.connection.address,
        language=client.language.name,
        version=client.version,
    )


def _producer(client: ConnectedClient) -> ProducerInfo:
    return ProducerInfo(
        client_id=client.client_id,
        remote_ip=f"/{client.connection.address}",
        language=client.language.name,
        version=client.version,
        last_update_timestamp=client.last_heartbeat_ms,
    )
