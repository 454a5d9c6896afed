"""Every reason why a store takes no message has an answer for the sender."""

import pytest

from downrange.broker.message_writer import CODES
from downrange.protocol.response_codes import ResponseCode
from downrange.store.errors import PutStatus


@pytest.mark.parametrize("status", [status for status in PutStatus if status.name != "PUT_OK"])
def test_every_reason_has_a_response_code(status: PutStatus) -> None:
    assert status in CODES


def test_a_stall_is_retried_on_another_broker_by_java_clients_of_all_versions() -> None:
    assert CODES[PutStatus.DISPATCH_STALLED] is ResponseCode.SERVICE_NOT_AVAILABLE
