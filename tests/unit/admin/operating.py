"""An admin client of a cluster in memory."""

from downrange.admin.admin_client import AdminClient
from downrange.client.session_table import SessionTable
from downrange.testing.cluster import MemoryCluster


def admin_of(site: MemoryCluster) -> AdminClient:
    table = SessionTable(nonce=1, around=site.surroundings())
    return AdminClient(site.client_settings(), sessions=table)
