"""What operates a cluster; the parts are named by what they are about.

async with AdminClient(ClientSettings(name_servers="127.0.0.1:9876")) as admin:
    print(await admin.topics.names())
"""

from typing import Self

from downrange.admin.brokers import Brokers
from downrange.admin.dead_letters import DeadLetterBox
from downrange.admin.doctor import Doctor
from downrange.admin.groups import Groups
from downrange.admin.layout import Layout, read_layout
from downrange.admin.messages import Messages
from downrange.admin.offsets import Offsets
from downrange.admin.requests import Requests
from downrange.admin.topics import Topics
from downrange.client.errors import ClientStateError
from downrange.client.session import Session
from downrange.client.session_table import SESSIONS, SessionTable
from downrange.client.settings import ClientSettings


class AdminClient:
    """Belongs to one event loop; opened and closed once, by `async with`.

    It is in no group and sends no heartbeats. All that it does is asked for.
    """

    def __init__(self, settings: ClientSettings, *, sessions: SessionTable = SESSIONS) -> None:
        self.settings = settings
        self._sessions = sessions
        self._session: Session | None = None

    async def __aenter__(self) -> Self:
        session = self._sessions.acquire(self.settings)
        try:
            await session.start()
        except BaseException:
            await self._sessions.release(session)
            raise
        self._session = session
        self.requests = Requests(
            session.peers, session.name_servers, timeout_s=self.settings.api_timeout_s
        )
        self.brokers = Brokers(self.requests)
        self.topics = Topics(self.requests)
        self.groups = Groups(self.requests)
        self.messages = Messages(session.calls, self.topics)
        self.offsets = Offsets(self.requests, session.calls, self.topics, self.groups, self.brokers)
        self.dead_letters = DeadLetterBox(self.topics)
        self.doctor = Doctor(self.requests, self.brokers, self.topics, self.groups, session.clock)
        return self

    async def __aexit__(self, *_: object) -> None:
        session, self._session = self._session, None
        if session is not None:
            await self._sessions.release(session)

    @property
    def session(self) -> Session:
        """The connections and routes, for readers of topics."""
        if self._session is None:
            raise ClientStateError("use `async with AdminClient(…) as admin`")
        return self._session

    async def layout(self) -> Layout:
        """Which clusters and brokers there are."""
        return await read_layout(self.requests)
