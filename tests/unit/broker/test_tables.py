"""A broker never starts with empty tables because it could not read them."""

import errno
from pathlib import Path

import pytest
from unit.broker.one_broker import OneBroker
from unit.broker.promises import PROMISES, prepare

from downrange.protocol.response_codes import ResponseCode
from downrange.runtime.durable_file import DurableFileError
from downrange.testing.faulty_disk import FaultyDisk
from downrange.testing.virtual_time import run

FILES = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "messageRequestMode.json",
)


async def leave_tables(root: Path) -> None:
    """A broker with something in all of its tables, shut down."""
    async with OneBroker(root) as broker:
        await prepare(broker)
        answer = await PROMISES["set a request mode"].ask(broker)
        assert answer.code == ResponseCode.SUCCESS


async def start_and_stop(broker: OneBroker) -> None:
    try:
        await broker.broker.start()
    finally:
        await broker.broker.stop()


@pytest.mark.parametrize("name", FILES)
def test_a_table_that_cannot_be_read_ends_the_start_and_stays_as_it_is(
    tmp_path: Path, name: str
) -> None:
    async def main() -> None:
        await leave_tables(tmp_path)
        path = tmp_path / "store" / "config" / name
        content = path.read_bytes()
        disk = FaultyDisk()
        disk.fail("read", errno.EIO, path_contains=name)
        with pytest.raises(OSError, match=name):
            await start_and_stop(OneBroker(tmp_path, disk=disk))
        assert path.read_bytes() == content

    run(main())


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_table_without_a_backup_ends_the_start_and_stays_as_it_is(
    tmp_path: Path, name: str
) -> None:
    async def main() -> None:
        await leave_tables(tmp_path)
        path = tmp_path / "store" / "config" / name
        damaged = path.read_bytes()[:-20]
        path.write_bytes(damaged)
        path.with_name(name + ".bak").unlink(missing_ok=True)
        with pytest.raises(DurableFileError, match=name):
            await start_and_stop(OneBroker(tmp_path))
        assert path.read_bytes() == damaged

    run(main())


@pytest.mark.parametrize("name", FILES)
def test_the_backup_of_a_damaged_table_is_used_and_that_is_logged(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        await leave_tables(tmp_path)
        path = tmp_path / "store" / "config" / name
        content = path.read_bytes()
        path.with_name(name + ".bak").write_bytes(content)
        path.write_bytes(content[:-20])
        async with OneBroker(tmp_path):
            pass
        assert any(f"{name}.bak is used, it may be out of date" in one for one in caplog.messages)

    run(main())
