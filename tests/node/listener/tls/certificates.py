"""Certificates of a new CA for each test run, and TLS contexts for listeners and clients."""

import logging
import ssl
from dataclasses import replace
from pathlib import Path

import trustme

from oncelog.node.config.listener_keys import ListenerSettings
from oncelog.node.listener.tls.credentials import TlsCredentials
from oncelog.wire.security.secret import Secret

LOG = logging.getLogger("oncelog.test")


class Certificates:
    """A CA, the broker's certificate and a client's, as files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ca = folder, trustme.CA()
        self.ca.cert_pem.write_to_path(folder / "ca.pem")
        self.write_broker("broker.pem")
        client = self.ca.issue_cert(common_name="alice", organization_name="Example")
        client.private_key_and_cert_chain_pem.write_to_path(folder / "alice.pem")

    def write_broker(self, name: str, common_name: str = "broker") -> None:
        issued = self.ca.issue_cert("127.0.0.1", "localhost", common_name=common_name)
        issued.private_key_and_cert_chain_pem.write_to_path(self.folder / name)

    def settings(self, **more: str | Secret | tuple[str, ...]) -> ListenerSettings:
        settings = ListenerSettings(
            ssl_keystore_location=str(self.folder / "broker.pem"),
            ssl_truststore_location=str(self.folder / "ca.pem"),
        )
        return replace(settings, **more)

    def credentials(self, **more: str | Secret | tuple[str, ...]) -> TlsCredentials:
        return TlsCredentials("CLIENTS", self.settings(**more), LOG)

    def client(self, *, certificate: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if certificate:
            context.load_cert_chain(self.folder / "alice.pem")
        return context
