"""What this broker does not have is refused by name, and never by accident."""

from pathlib import Path

import pytest
from unit.broker.admin.desk import Desk, at_desk

from downrange.broker.handlers.admin.unsupported import REFUSALS
from downrange.protocol.request_codes import RequestCode, RetiredRequestCode
from downrange.protocol.response_codes import ResponseCode


@pytest.mark.parametrize(
    ("code", "response_code", "word"),
    [
        (RequestCode.GET_TIMER_CHECK_POINT, ResponseCode.SYSTEM_ERROR, "timerWheelEnable"),
        (RequestCode.GET_TIMER_METRICS, ResponseCode.SYSTEM_ERROR, "timerWheelEnable"),
        (RequestCode.POP_MESSAGE, ResponseCode.SYSTEM_ERROR, "pop"),
        (RequestCode.RECALL_MESSAGE, ResponseCode.NO_PERMISSION, "forbidden"),
        (RequestCode.GET_BROKER_HA_STATUS, ResponseCode.SYSTEM_ERROR, "replication"),
        (RequestCode.GET_BROKER_EPOCH_CACHE, ResponseCode.SYSTEM_ERROR, "controllerMode"),
        (RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, ResponseCode.SYSTEM_ERROR, "cold data"),
        (RequestCode.AUTH_LIST_USER, ResponseCode.SYSTEM_ERROR, "ACL 2.0"),
        (RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, ResponseCode.SYSTEM_ERROR, "RocksDB"),
        (RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, ResponseCode.SYSTEM_ERROR, "static topics"),
        (RequestCode.GET_BROKER_LITE_INFO, ResponseCode.SYSTEM_ERROR, "lite topics"),
        (RequestCode.ADD_BROKER, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "container"),
        (RetiredRequestCode.DELETE_ACL_CONFIG, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "ACL 1.0"),
    ],
)
def test_a_feature_that_is_not_built_is_named(
    tmp_path: Path,
    code: RequestCode | RetiredRequestCode,
    response_code: int,
    word: str,
) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(code, b"not even JSON", anything="at all")
        assert answer.code == response_code
        assert word in (answer.remark or "")
        if response_code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            assert (answer.remark or "").startswith(f" request type {code.value} not supported")

    at_desk(tmp_path, scenario)


def test_every_refusal_is_an_error_with_a_text() -> None:
    assert all(code and text for code, text in REFUSALS.values())


def test_a_code_of_nobody_is_not_supported(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(99_999)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 99999 not supported"

    at_desk(tmp_path, scenario)
