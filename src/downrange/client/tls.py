"""The network of a client, with TLS or without."""

import ssl

from downrange.remoting.network import TcpNetwork


def client_network(*, use_tls: bool, context: ssl.SSLContext | None = None) -> TcpNetwork:
    """TCP connections; with TLS they are encrypted, and without a context the peer is not checked.

    That is what the Java client does unless it is given certificates (tls.client.authServer), and
    clusters with certificates of their own making rely on it.
    """
    if not use_tls:
        return TcpNetwork()
    return TcpNetwork(tls=context or unchecked_context())


def unchecked_context() -> ssl.SSLContext:
    """Encrypts, and takes whatever certificate the peer shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
