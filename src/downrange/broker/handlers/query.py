"""QUERY_MESSAGE and VIEW_MESSAGE_BY_ID: single messages by key, unique id, tag or place."""

from downrange.protocol.command import Command, response
from downrange.protocol.command_codec import encode_command_start
from downrange.protocol.headers.fields import decode_header, encode_header
from downrange.protocol.headers.query import (
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
)
from downrange.protocol.request_codes import RequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler
from downrange.remoting.errors import Refused
from downrange.store.lookup import Lookup

TAG_INDEX = "T"
UNIQUE_COUNT_MAX = 32  # a unique id has one message, and its retries have it too


class QueryHandler:
    """Answers with the log's own bytes."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def routes(self) -> dict[int, Handler]:
        """Which codes this serves."""
        return {
            RequestCode.QUERY_MESSAGE: self.query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view,
        }

    def query(self, request: Command, _: Connection) -> Answer:
        """Messages that have a key."""
        header = decode_header(QueryMessageRequest, request.ext_fields)
        count_max = UNIQUE_COUNT_MAX if header.unique_key else header.max_num
        result = self._lookup.query(
            header.topic,
            header.key,
            header.begin_timestamp,
            header.end_timestamp,
            count_max,
            is_tag=header.index_type == TAG_INDEX,
        )
        if not result.records:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
            )
        fields = encode_header(
            QueryMessageResponse(
                index_last_update_timestamp=result.index_timestamp,
                index_last_update_phyoffset=result.index_offset,
            )
        )
        size = sum(map(len, result.records))
        head = response(request, ResponseCode.SUCCESS, ext_fields=fields)
        return [encode_command_start(head, size), *result.records]

    def view(self, request: Command, _: Connection) -> Answer:
        """The message at a place of the log."""
        header = decode_header(ViewMessageRequest, request.ext_fields)
        record = self._lookup.record_at(header.offset)
        if record is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        head = response(request, ResponseCode.SUCCESS)
        return [encode_command_start(head, len(record)), record]
