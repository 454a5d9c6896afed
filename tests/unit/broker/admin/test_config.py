"""Settings of a running broker: changed, or refused with the reason; never a yes that means no."""

from pathlib import Path

import pytest
from unit.broker.admin.desk import Desk, at_desk
from unit.store.building import StagedDisk

from downrange.broker.handlers.admin.config import FIXED
from downrange.broker.handlers.admin.config_file import ConfigFile, edited
from downrange.broker.settings import BrokerSettings, StoreFileSettings
from downrange.protocol.request_codes import RequestCode as Code
from downrange.protocol.response_codes import ResponseCode
from downrange.runtime.property_text import read_properties
from downrange.runtime.settings import SettingsSource, keys_of


def values(body: bytes | None) -> dict[str, str]:
    return {entry.key: entry.value for entry in read_properties(body or b"")}


def test_all_settings_are_shown_with_what_was_found_out(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask(Code.GET_BROKER_CONFIG)
        shown = values(answer.body)
        assert shown["brokerName"] == "broker-a"
        assert shown["brokerIP1"] == "127.0.0.1"
        assert shown["fileReservedTime"] == "72"
        assert list(shown) == sorted(shown)
        assert answer.ext_fields is not None
        assert answer.ext_fields["version"].startswith('{"counter":0,')

    at_desk(tmp_path, scenario)


def test_a_changed_setting_is_shown_durable_and_read_at_the_next_start(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        desk.config_path.write_text("# mine\nbrokerName = broker-a\nfileReservedTime : 24\n")
        answer = await desk.ask(
            Code.UPDATE_BROKER_CONFIG, b"fileReservedTime=48\nautoCreateTopicEnable=false"
        )
        assert answer.code == 0
        assert answer.remark == (
            "saved, takes effect at the next start: autoCreateTopicEnable, fileReservedTime"
        )
        answer = await desk.ask(Code.GET_BROKER_CONFIG)
        shown = values(answer.body)
        assert (shown["fileReservedTime"], shown["autoCreateTopicEnable"]) == ("48", "false")
        assert answer.ext_fields is not None
        assert answer.ext_fields["version"].startswith('{"counter":1,')
        assert desk.config_path.read_text() == (
            "# mine\nbrokerName = broker-a\nfileReservedTime=48\nautoCreateTopicEnable=false\n"
        )
        source = SettingsSource.from_file(desk.config_path)
        assert source.read(BrokerSettings).auto_create_topics is False
        assert source.read(StoreFileSettings).file_reserved_hours == 48

    at_desk(tmp_path, scenario)


def test_a_setting_that_the_broker_can_take_over_works_at_once(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        seen: list[int] = []
        desk.live["brokerPermission"] = lambda broker, _: seen.append(broker.permission)
        answer = await desk.ask(Code.UPDATE_BROKER_CONFIG, b"brokerPermission=4")
        assert (answer.code, answer.remark) == (0, None)
        assert seen == [4]

    at_desk(tmp_path, scenario)


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("noSuchKey=3", ResponseCode.INVALID_PARAMETER, "noSuchKey"),
        ("fileReservedTime=48\nnoSuchKey=3", ResponseCode.INVALID_PARAMETER, "noSuchKey"),
        ("fileReservedTime=abc", ResponseCode.INVALID_PARAMETER, "abc"),
        ("fileReservedTime=0", ResponseCode.INVALID_PARAMETER, "at least 1"),
        ("brokerPermission=9", ResponseCode.INVALID_PARAMETER, "from 0 to 7"),
        ("traceOn=maybe", ResponseCode.INVALID_PARAMETER, "true or false"),
        ("flushDiskType=NEVER", ResponseCode.INVALID_PARAMETER, "SYNC_FLUSH"),
        ("deleteWhen=25", ResponseCode.INVALID_PARAMETER, "hour"),
        ("messageDelayLevel=1x", ResponseCode.INVALID_PARAMETER, "1x"),
        ("brokerConfigPath=/x", ResponseCode.NO_PERMISSION, "black list"),
        ("regionId=x", ResponseCode.NO_PERMISSION, "black list"),
        ("fileReservedTime=48\nmaxIndexNum=7", ResponseCode.NO_PERMISSION, "maxIndexNum"),
        ("", ResponseCode.INVALID_PARAMETER, "no setting"),
        ("x=\\u12", ResponseCode.INVALID_PARAMETER, "u12"),
    ],
)
def test_a_change_that_cannot_be_is_refused_as_a_whole(
    tmp_path: Path, text: str, code: int, word: str
) -> None:
    async def scenario(desk: Desk) -> None:
        before = (await desk.ask(Code.GET_BROKER_CONFIG)).body
        answer = await desk.ask(Code.UPDATE_BROKER_CONFIG, text.encode())
        assert answer.code == code
        assert word in (answer.remark or "")
        assert (await desk.ask(Code.GET_BROKER_CONFIG)).body == before
        assert not desk.config_path.exists()

    at_desk(tmp_path, scenario)


def test_what_files_and_names_depend_on_is_known_and_fixed(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        shown = values((await desk.ask(Code.GET_BROKER_CONFIG)).body)
        known = keys_of(BrokerSettings, StoreFileSettings)
        assert set(known) >= FIXED
        for key in FIXED:
            text = f"{key}={shown.get(key, '')}".encode()
            answer = await desk.ask(Code.UPDATE_BROKER_CONFIG, text)
            assert answer.code == ResponseCode.NO_PERMISSION

    at_desk(tmp_path, scenario)


def test_nothing_changes_when_the_file_cannot_be_written(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        desk.config_path.mkdir()
        answer = await desk.ask(Code.UPDATE_BROKER_CONFIG, b"fileReservedTime=48")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "nothing was changed" in (answer.remark or "")
        shown = values((await desk.ask(Code.GET_BROKER_CONFIG)).body)
        assert shown["fileReservedTime"] == "72"

    at_desk(tmp_path, scenario)


def test_values_are_replaced_where_they_stand() -> None:
    text = b"! first\r\na = 1 \\\r\n    2\r\nb=3\r\na=4\r\n# last"
    assert edited(text, {"a": "x y", "c": "5"}) == b"! first\nb=3\na=x y\n# last\nc=5\n"
    assert edited(b"", {"b": "2", "a": " 1"}) == b"a=\\ 1\nb=2\n"
    assert edited(b"a=1\\", {"a": "2"}) == b"a=2\n"


def test_the_file_before_the_change_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "conf" / "broker.conf"
    file = ConfigFile(StagedDisk(), path)
    file.set({"a": "1"})
    file.set({"a": "2"})
    assert path.read_bytes() == b"a=2\n"
    assert path.with_name("broker.conf.bak").read_bytes() == b"a=1\n"
