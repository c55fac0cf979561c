"""A cluster that is already running."""

from __future__ import annotations

from xnq_dist.core.cluster import Connection
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.settings import ClusterSettings

__all__ = ["connection_to"]


def connection_to(settings: ClusterSettings) -> Connection:
    """The connection to the scheduler at `cluster.address`; nothing is sent.

    Raises
    ------
    SettingsError
        When certificates are needed and are missing or cannot be read.
    """
    from distributed import Security

    address = settings.address or ""  # the settings have one for this kind
    if not address.startswith("tls://"):
        return Connection(address)
    files = {
        "tls_ca_file": settings.tls_ca,
        "tls_client_cert": settings.tls_cert,
        "tls_client_key": settings.tls_key,
    }
    # Without these settings, Dask's configuration names the certificates.
    security = Security(require_encryption=True, **(files if settings.tls_ca else {}))
    try:
        context = security.get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the certificates for {address} cannot be used ({error}): check that all "
            "three are PEM files and cluster.tls_key is the key to cluster.tls_cert"
        ) from error
    if context is None:
        raise SettingsError(
            f"{address} needs certificates: set cluster.tls_ca, cluster.tls_cert and "
            "cluster.tls_key to their files"
        )
    return Connection(address, security)
