"""Requests about what this broker does not have, refused with a text that names it.

The code of a refusal is the one that an Apache broker gives with the feature switched off; where it
says yes and does nothing, we say no. A handler of a feature that comes takes its codes from here.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from downrange.protocol.command import Command, response
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.request_codes import RetiredRequestCode
from downrange.protocol.response_codes import ResponseCode
from downrange.remoting.connection import Answer, Connection, Handler

_ERROR = ResponseCode.SYSTEM_ERROR
_UNKNOWN = ResponseCode.REQUEST_CODE_NOT_SUPPORTED

_TIMER = "timer messages are not built, timerWheelEnable is false"
_POP = "pop is not built: the pop message is forbidden because timerWheelEnable is false"
_HA = "replication is not built, this broker has no slaves and is none"
_CONTROLLER = "this request only for controllerMode, which is not built"
_COLD = "cold data flow control is not built, coldDataFlowControlEnable is false"
_AUTH = "authentication and ACL 2.0 are not built, authenticationEnabled is false"
_ROCKSDB = "RocksDB is not built, storeType is default and tables are JSON files"
_LITE = "lite topics are not built, enableLmq is false"


def _all(codes: Iterable[Code], code: int, text: str) -> dict[int, tuple[int, str]]:
    return {one.value: (code, text) for one in codes}


REFUSALS: Mapping[int, tuple[int, str]] = MappingProxyType(
    {
        **_all(
            (
                Code.POP_MESSAGE,
                Code.ACK_MESSAGE,
                Code.BATCH_ACK_MESSAGE,
                Code.PEEK_MESSAGE,
                Code.CHANGE_MESSAGE_INVISIBLETIME,
                Code.NOTIFICATION,
                Code.POLLING_INFO,
                Code.POP_ROLLBACK,
            ),
            _ERROR,
            _POP,
        ),
        Code.GET_TIMER_CHECK_POINT: (_ERROR, f"The checkpoint is null: {_TIMER}"),
        Code.GET_TIMER_METRICS: (_ERROR, f"The timer message store is null: {_TIMER}"),
        Code.SWITCH_TIMER_ENGINE: (_ERROR, _TIMER),
        Code.RECALL_MESSAGE: (
            ResponseCode.NO_PERMISSION,
            f"recall failed, operation is forbidden: {_TIMER}",
        ),
        **_all(
            (
                Code.NOTIFY_MIN_BROKER_ID_CHANGE,
                Code.EXCHANGE_BROKER_HA_INFO,
                Code.RESET_MASTER_FLUSH_OFFSET,
            ),
            _ERROR,
            _HA,
        ),
        Code.GET_BROKER_HA_STATUS: (_ERROR, f"Can not get HARuntimeInfo: {_HA}"),
        **_all((Code.GET_BROKER_EPOCH_CACHE, Code.NOTIFY_BROKER_ROLE_CHANGED), _ERROR, _CONTROLLER),
        **_all(
            (
                Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
                Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
                Code.GET_COLD_DATA_FLOW_CTR_INFO,
            ),
            _ERROR,
            _COLD,
        ),
        Code.SET_COMMITLOG_READ_MODE: (
            _ERROR,
            "set commitlog readahead mode failed: read-ahead of the log is the system's",
        ),
        **_all(
            (code for code in Code if code.name.startswith("AUTH_")),
            _ERROR,
            _AUTH,
        ),
        **_all(
            (Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, Code.EXPORT_ROCKSDB_CONFIG_TO_JSON),
            _ERROR,
            _ROCKSDB,
        ),
        Code.UPDATE_AND_CREATE_STATIC_TOPIC: (_ERROR, "static topics are not built"),
        **_all(
            (
                Code.POP_LITE_MESSAGE,
                Code.LITE_SUBSCRIPTION_CTL,
                Code.GET_BROKER_LITE_INFO,
                Code.GET_PARENT_TOPIC_INFO,
                Code.GET_LITE_TOPIC_INFO,
                Code.GET_LITE_CLIENT_INFO,
                Code.GET_LITE_GROUP_INFO,
                Code.TRIGGER_LITE_DISPATCH,
            ),
            _ERROR,
            _LITE,
        ),
        **_all(
            (Code.ADD_BROKER, Code.REMOVE_BROKER), _UNKNOWN, "this broker is in no broker container"
        ),
        **{
            code.value: (_UNKNOWN, "ACL 1.0 has left RocketMQ with 5.3.3, see ACL 2.0")
            for code in RetiredRequestCode
        },
    }
)


def refuse(request: Command, _: Connection) -> Answer:
    """Say no, and why."""
    code, text = REFUSALS[request.code]
    if code == _UNKNOWN:
        # How RocketMQ begins, blank included; what follows is for people.
        text = f" request type {request.code} not supported: {text}"
    return response(request, code, remark=text)


def routes() -> dict[int, Handler]:
    """A refusal for each code of the table; what is served must come after it."""
    return dict.fromkeys(REFUSALS, refuse)
