"""Test the PEM certificates of a listener, given as files or text, and changes of the files."""

import contextlib
import logging
import ssl
from pathlib import Path

import pytest

from oncelog.coordinator.security.principal import ANONYMOUS, Principal
from oncelog.node.config.broker_config import BrokerConfig
from oncelog.node.listener.tls.credentials import make_context, tls_credentials
from oncelog.wire.errors import InvalidConfig
from oncelog.wire.security.secret import Secret

from .certificates import LOG, Certificates
from .test_channel import Peer


def shown_by(certificates: Certificates, context: ssl.SSLContext) -> str:
    """Return the common name in the server certificate that a client gets."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(incoming, outgoing, server_side=True)
    peer = Peer(certificates.client(certificate=True))
    for _ in range(3):
        peer.handshake()
        incoming.write(peer.outgoing.read())
        with contextlib.suppress(ssl.SSLWantReadError):
            server.do_handshake()
        peer.incoming.write(outgoing.read())
    subject = (peer.tls.getpeercert() or {})["subject"]
    return next(value for part in subject for name, value in part if name == "commonName")  # type: ignore[misc,union-attr]


def test_tls_key_and_certificates_may_be_given_as_text(certificates: Certificates) -> None:
    text = (certificates.folder / "broker.pem").read_text()
    at = text.index("-----BEGIN CERTIFICATE")
    values = certificates.settings(
        ssl_keystore_location="",
        ssl_keystore_key=Secret(text[:at].replace("\n", "\\n")),
        ssl_keystore_certificate_chain=Secret(text[at:]),
        ssl_truststore_location="",
        ssl_truststore_certificates=Secret((certificates.folder / "ca.pem").read_text()),
        ssl_client_auth="required",
    )
    assert shown_by(certificates, make_context(values, "x")) == "broker"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"ssl_keystore_location": ""}, "needs ssl.keystore.location"),
        ({"ssl_keystore_location": "/nowhere.pem"}, "No such file"),
        ({"ssl_keystore_location": "{folder}/ca.pem"}, "cannot be used"),
        ({"ssl_client_auth": "required", "ssl_truststore_location": ""}, "needs ssl.truststore"),
        ({"ssl_client_auth": "required", "ssl_truststore_location": "/no.pem"}, "No such file"),
    ],
)
def test_tls_settings_without_loadable_certificate_files_are_refused_with_a_reason(
    certificates: Certificates, changed: dict[str, str], says: str
) -> None:
    given = {key: text.format(folder=certificates.folder) for key, text in changed.items()}
    with pytest.raises(InvalidConfig) as caught:
        certificates.credentials(**given)
    assert says in str(caught.value)


def test_tls_certificate_file_that_changes_is_loaded_unless_broken(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG.name)
    certificates.write_broker("changing.pem", "first")
    file = certificates.folder / "changing.pem"
    found = certificates.credentials(ssl_keystore_location=str(file))
    found.refresh()
    assert not caplog.messages
    certificates.write_broker("changing.pem", "second")
    found.refresh()
    assert shown_by(certificates, found.context) == "second"
    file.write_text("no certificate")
    for _ in range(2):
        found.refresh()
    assert shown_by(certificates, found.context) == "second"
    assert [message.split(":")[0] for message in caplog.messages] == [
        "listener CLIENTS uses its new certificates",
        "new certificates cannot be loaded",
    ]


@pytest.mark.parametrize(
    ("rules", "name"),
    [("DEFAULT", "CN=alice,O=Example"), ("RULE:^CN=(.*?),.*$/$1/U,DEFAULT", "ALICE")],
)
def test_tls_principal_is_the_mapped_subject(
    certificates: Certificates, rules: str, name: str
) -> None:
    found = certificates.credentials(ssl_principal_mapping_rules=rules)
    subject = ((("organizationName", "Example"),), (("commonName", "alice"),))
    assert found.principal_of({"subject": subject}) == Principal("User", name)
    assert found.principal_of(None) == ANONYMOUS


def test_tls_client_without_a_matching_rule_is_anonymous(certificates: Certificates) -> None:
    found = certificates.credentials(ssl_principal_mapping_rules="RULE:^nobody$/x/")
    assert found.principal_of({"subject": ((("commonName", "alice"),),)}) == ANONYMOUS


def test_tls_configuration_printed_shows_no_password(
    certificates: Certificates, tmp_path: Path
) -> None:
    key = (certificates.folder / "broker.pem").read_text()
    properties = {
        "node.id": "1",
        "oncelog.voters": "1",
        "log.dirs": str(tmp_path),
        "oncelog.peer.directory": str(tmp_path),
        "listeners": "SSL://127.0.0.1:1",
        "ssl.keystore.key": key,
        "listener.name.ssl.ssl.key.password": "geheim",
        "listener.name.ssl.ssl.keystore.location": str(certificates.folder / "broker.pem"),
    }
    config = BrokerConfig.from_properties(properties)
    assert list(tls_credentials(config, LOG)) == ["SSL"]
    shown = f"{config!r}{config.static_values}{config.text_of('ssl.keystore.key')}"
    assert "geheim" not in shown and "PRIVATE KEY" not in shown
