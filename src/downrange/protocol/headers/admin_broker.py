"""Headers of looking at a broker as a whole."""

from downrange.protocol.headers.fields import Header


class GetBrokerConfigResponse(Header, frozen=True, kw_only=True):
    """The version of the settings in the body, JSON text of a DataVersion."""

    version: str


class ViewBrokerStatsRequest(Header, frozen=True, kw_only=True):
    """VIEW_BROKER_STATS_DATA: the last minute, hour and day of one counter."""

    stats_name: str
    stats_key: str
