"""The broker as a whole: its statistics, its delay levels, its old files."""

import logging
from collections.abc import Callable
from typing import Protocol

from downrange.protocol.bodies.json_body import encode_body
from downrange.protocol.bodies.statistics import BrokerStatsData
from downrange.protocol.command import Command, response
from downrange.protocol.headers.admin_broker import ViewBrokerStatsRequest
from downrange.protocol.headers.fields import decode_header
from downrange.protocol.json_text import write_json
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.store.offset_tables import DelayOffsets

_log = logging.getLogger(__name__)


class Counters(Protocol):
    """What is asked about single counters."""

    def stats_data(self, name: str, key: str) -> BrokerStatsData | None:
        """A counter under RocketMQ's name and key; None if nothing was counted under them."""
        ...


class OldFiles(Protocol):
    """What is asked of the store's retention."""

    def request_now(self) -> None:
        """Delete expired files without waiting for the hour."""
        ...

    def follow_log(self) -> None:
        """Let queues and index forget what the log no longer holds."""
        ...


class BrokerHandler:
    """Serves what belongs to no topic and no group."""

    def __init__(
        self,
        counters: Counters,
        retention: OldFiles,
        delay_offsets: Callable[[], DelayOffsets],
    ) -> None:
        self._counters = counters
        self._retention = retention
        self._delay_offsets = delay_offsets

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_stats,
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_delay_offsets,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_log_files,
        }

    def view_stats(self, request: Command, _: Connection) -> Answer:
        """The last minute, hour and day of one counter."""
        header = decode_header(ViewBrokerStatsRequest, request.ext_fields)
        data = self._counters.stats_data(header.stats_name, header.stats_key)
        if data is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return response(request, ResponseCode.SUCCESS, body=encode_body(data))

    def get_delay_offsets(self, request: Command, _: Connection) -> Answer:
        """How far each delay level is, as slaves copy it."""
        return response(request, ResponseCode.SUCCESS, body=write_json(self._delay_offsets()))

    def clean_queues(self, request: Command, connection: Connection) -> Answer:
        """Delete the files of queues all of whose messages are gone."""
        _log.info("expired queue files are deleted for %s", connection.address)
        self._retention.follow_log()
        return response(request, ResponseCode.SUCCESS)

    def delete_log_files(self, request: Command, connection: Connection) -> Answer:
        """Delete expired files of the log in the next rounds, whatever the hour."""
        _log.warning("expired files of the log are to be deleted now, says %s", connection.address)
        self._retention.request_now()
        return response(request, ResponseCode.SUCCESS)
