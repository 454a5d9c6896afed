"""Standard input in pieces, read so that neither a slow writer nor Ctrl-C has to wait."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, TypeVar

from downrange.admin.errors import WrongRequestError

READ_BYTES: Final = 1 << 16
PIECE_BYTES_MAX: Final = 64 << 20
T = TypeVar("T")


def standard_input() -> BinaryIO:
    """Standard input without a buffer: a read returns what is there, and holds no lock.

    The lock of a buffer that a thread reads from would keep the process from ending.
    """
    try:
        number = sys.stdin.fileno()
    except (OSError, ValueError):
        return sys.stdin.buffer  # not a file, as in a test
    return open(number, "rb", buffering=0, closefd=False)


def chunks(source: BinaryIO, separator: bytes | None) -> Iterator[list[bytes]]:
    """What stands between separators, as it comes, empty pieces left out; all as one if None."""
    rest = b""
    while data := source.read(READ_BYTES):
        rest += data
        if len(rest) > PIECE_BYTES_MAX:
            raise WrongRequestError(
                f"a message of more than {PIECE_BYTES_MAX} bytes; is the delimiter right?"
            )
        if separator is not None:
            *pieces, rest = rest.split(separator)
            if found := [piece for piece in map(_stripped(separator), pieces) if piece]:
                yield found
    last = rest if separator is None else _stripped(separator)(rest)
    if last:
        yield [last]


def _stripped(separator: bytes) -> Callable[[bytes], bytes]:
    """Lines may end as on Windows."""
    if separator == b"\n":
        return lambda piece: piece.removesuffix(b"\r")
    return lambda piece: piece


async def in_a_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread that a process does not wait for when it ends."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, result, failure)

    threading.Thread(target=run, name="standard input", daemon=True).start()
    return await done
