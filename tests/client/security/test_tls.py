"""Test which TLS listeners the client trusts, and the messages of failed handshakes."""

import asyncio
import re
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.failures import SecurityProtocolMismatch, SslAuthenticationFailed
from oncelog.client.loop_thread import new_event_loop
from oncelog.client.security.config import TlsConfig
from oncelog.client.security.tls import explain, is_tls, make_context
from oncelog.client.view_source import view_of
from oncelog.wire.errors import KafkaError, NetworkException
from oncelog.wire.security.secret import Secret

from ...present import present
from .listener import Listener

TIMEOUT_MS = 5_000  # for a client that keeps retrying
ALICE = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "geheim"}


class Files:
    """The PEM files of two CAs and of the certificates that they signed."""

    def __init__(self, folder: Path) -> None:
        trustme = pytest.importorskip("trustme")  # of the extra `test`, with cryptography
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            PrivateFormat,
            load_pem_private_key,
        )

        self.ca, self.other_ca = trustme.CA(), trustme.CA()
        self.folder = folder
        self.server = self.ca.issue_cert("127.0.0.1", "localhost")
        self.elsewhere = self.ca.issue_cert("elsewhere.example.org")
        ends = datetime.now(UTC) - timedelta(days=1)
        self.expired = self.ca.issue_cert("127.0.0.1", not_after=ends)
        late = self.ca.issue_cert("alice@example.org", not_after=ends)
        late.private_key_and_cert_chain_pem.write_to_path(folder / "late.pem")
        client = self.ca.issue_cert("alice@example.org")
        self.ca.cert_pem.write_to_path(folder / "ca.pem")
        self.other_ca.cert_pem.write_to_path(folder / "other-ca.pem")
        self.certificate_pem = b"".join(blob.bytes() for blob in client.cert_chain_pems).decode()
        self.key_pem = client.private_key_pem.bytes().decode()
        (folder / "client.pem").write_text(self.certificate_pem + self.key_pem)
        (folder / "certificate.pem").write_text(self.certificate_pem)
        key = load_pem_private_key(self.key_pem.encode(), None)
        (folder / "locked.pem").write_bytes(
            key.private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"Schluessel")
            )
        )
        other = self.other_ca.issue_cert("mallory@example.org")
        other.private_key_and_cert_chain_pem.write_to_path(folder / "mallory.pem")

    def context(self, *, server: Any = None, wants_client: bool = False):
        """Return the TLS context of a listener with the certificate `server`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (server or self.server).configure_cert(context)
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
            self.ca.configure_trust(context)
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


async def brokers_of(listener: Listener, values: dict[str, object]) -> int:
    view = view_of({"bootstrap.servers": f"{listener.host}:{listener.port}", **values})
    try:
        return len((await view.retrying(view.refresh, timeout_ms=TIMEOUT_MS)).brokers)
    finally:
        await view.close()


def met(values: dict[str, object], context: ssl.SSLContext | None, *, has_sasl: bool) -> int:
    async def work() -> int:
        async with Listener(has_sasl=has_sasl).running(context) as listener:
            return await brokers_of(listener, values)

    said, last = set(), None
    # an application's own loop, and that of our threads
    for loop in (asyncio.new_event_loop, new_event_loop):
        with asyncio.Runner(loop_factory=loop) as runner:
            try:
                said.add(runner.run(work()))
            except KafkaError as problem:
                said.add((type(problem), re.sub(r":\d+", ":1", str(problem))))
                last = problem
    assert len(said) == 1, said
    (one,) = said
    if isinstance(one, int):
        return one
    raise present(last)


def test_tls_broker_with_a_trusted_certificate_is_connected(files):
    text = (files.folder / "ca.pem").read_text()
    for trust in ({"ssl.ca.location": str(files.folder / "ca.pem")}, {"ssl.ca.pem": text},
                  {"enable.ssl.certificate.verification": "false"}):  # fmt: skip
        assert met({"security.protocol": "SSL", **trust}, files.context(), has_sasl=False) == 1
    values = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(files.folder / "ca.pem")}
    assert met({**values, **ALICE}, files.context(), has_sasl=True) == 1


@pytest.mark.parametrize("form", ["one file", "two files", "texts", "a locked key"])
def test_tls_client_certificate_is_accepted_in_each_form(files, form):
    folder = files.folder
    given = {
        "one file": {"ssl.keystore.location": str(folder / "client.pem")},
        "two files": {
            "ssl.certificate.location": str(folder / "certificate.pem"),
            "ssl.key.location": str(folder / "client.pem"),
        },
        "texts": {"ssl.certificate.pem": files.certificate_pem, "ssl.key.pem": files.key_pem},
        "a locked key": {
            "ssl.certificate.location": str(folder / "certificate.pem"),
            "ssl.key.location": str(folder / "locked.pem"),
            "ssl.key.password": "Schluessel",
        },
    }[form]
    values = {"security.protocol": "SSL", "ssl.ca.location": str(folder / "ca.pem"), **given}
    assert met(values, files.context(wants_client=True), has_sasl=False) == 1


def refusal(values: dict[str, object], context: ssl.SSLContext | None, has_sasl: bool) -> str:
    with pytest.raises(KafkaError) as failure:
        met(values, context, has_sasl=has_sasl)
    assert not failure.value.retriable
    assert isinstance(failure.value, SslAuthenticationFailed | SecurityProtocolMismatch)
    return str(failure.value)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls_handshake_with_an_untrusted_certificate_raises_an_explanation(files, version):
    folder = files.folder
    ours = {"ssl.ca.location": str(folder / "ca.pem"), "ssl.enabled.protocols": version}
    said = refusal({"security.protocol": "SSL", **ours, "ssl.ca.location":
                    str(folder / "other-ca.pem")}, files.context(), False)  # fmt: skip
    assert "not signed by a CA that we trust" in said and "ssl.ca.location" in said
    elsewhere = files.context(server=files.elsewhere)
    said = refusal({"security.protocol": "SSL", **ours}, elsewhere, False)
    assert "is not of 127.0.0.1" in said and "ssl.endpoint.identification.algorithm" in said
    no_check = {**ours, "ssl.endpoint.identification.algorithm": ""}
    assert met({"security.protocol": "SSL", **no_check}, elsewhere, has_sasl=False) == 1
    wants = files.context(wants_client=True)
    said = refusal({"security.protocol": "SSL", **ours}, wants, False)
    assert "asks for a client certificate" in said or "have no version" in said
    mallory = {**ours, "ssl.keystore.location": str(folder / "mallory.pem")}
    said = refusal({"security.protocol": "SSL", **mallory}, wants, False)
    assert "refuses our client certificate" in said


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls_handshake_with_an_expired_certificate_raises_an_explanation(files, version):
    folder = files.folder
    ours = {"ssl.ca.location": str(folder / "ca.pem"), "ssl.enabled.protocols": version}
    said = refusal({"security.protocol": "SSL", **ours}, files.context(server=files.expired), False)
    assert "is not valid now (certificate has expired): have it renewed" in said
    late = {**ours, "ssl.keystore.location": str(folder / "late.pem")}
    wants = files.context(wants_client=True)
    said = refusal({"security.protocol": "SSL", **late}, wants, False)
    assert "refuses our client certificate" in said and f"-dates -in {folder}/late.pem" in said


def test_tls_or_sasl_at_only_one_of_client_and_listener_raises_an_explanation(files):
    folder = files.folder
    ca = {"ssl.ca.location": str(folder / "ca.pem")}
    said = refusal({}, files.context(), False)
    assert "speaks TLS, this client does not: set security.protocol to SSL" in said
    said = refusal({"security.protocol": "SASL_PLAINTEXT", **ALICE}, files.context(), True)
    assert "speaks TLS, this client does not" in said
    said = refusal({"security.protocol": "SSL", **ca}, None, False)
    assert "does not speak TLS: set security.protocol to PLAINTEXT" in said
    said = refusal({"security.protocol": "SASL_SSL", **ca, **ALICE}, None, True)
    assert "does not speak TLS" in said
    said = refusal({"security.protocol": "SSL", **ca}, files.context(), True)
    assert "asks for SASL: set security.protocol to SASL_SSL" in said


def test_tls_versions_without_an_overlap_are_explained(files):
    context = files.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    values = {"security.protocol": "SSL", "ssl.ca.location": str(files.folder / "ca.pem")}
    said = refusal({**values, "ssl.enabled.protocols": "TLSv1.3"}, context, False)
    assert "ssl.enabled.protocols" in said


def test_tls_file_that_cannot_be_used_is_refused_with_the_reason(files):
    folder = files.folder
    (folder / "trust.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (folder / "store.p12").write_bytes(b"\x30\x82\x01\x02")
    (folder / "empty.pem").write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    certificate = str(folder / "certificate.pem")
    for config, words in (
        (TlsConfig(ca_file=str(folder / "none.pem")), "No such file"),
        (TlsConfig(ca_file=str(folder / "trust.jks")), "Java keystore.*keytool -list -rfc"),
        (TlsConfig(ca_file=str(folder / "store.p12")), "PKCS#12 or DER"),
        (TlsConfig(ca_file=str(folder / "empty.pem")), "no certificate in PEM form"),
        (TlsConfig(ca_pem="nothing"), "ssl.ca.pem holds no certificate"),
        (TlsConfig(certificate_file=str(folder / "store.p12"),
                   key_file=str(folder / "store.p12")), "openssl pkcs12"),
        (TlsConfig(certificate_file=certificate, key_file=str(folder / "locked.pem")),
         "needs ssl.key.password"),
        (TlsConfig(certificate_file=certificate, key_file=str(folder / "locked.pem"),
                   key_password=Secret("falsch")), "is ssl.key.password right"),
        (TlsConfig(certificate_file=certificate, key_file=str(folder / "mallory.pem")),
         "not the key of"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words) as failure:
            make_context(config)
        assert "falsch" not in str(failure.value)


def test_tls_file_that_cannot_be_used_raises_value_error_in_the_caller(files):
    with pytest.raises(ValueError, match="No such file"):
        met(
            {"security.protocol": "SSL", "ssl.ca.location": str(files.folder / "none.pem")},
            files.context(),
            has_sasl=False,
        )


def test_tls_failure_of_an_unknown_kind_becomes_a_network_error():
    problem = ssl.SSLError(1, "[SSL] unexpected eof")
    assert isinstance(explain(problem, "b", 1, TlsConfig()), NetworkException)


@pytest.mark.parametrize(
    ("start", "is_alert"),
    [(b"\x15\x03\x03\0", True), (b"\x16\x03\x01\2", True), (b"\0\0\0\x20", False), (b"", False)],
)
def test_is_tls_recognizes_alert_and_handshake_bytes(start, is_alert):
    assert is_tls(start) is is_alert


def test_ca_pem_with_a_comment_beyond_ascii_is_read(files):
    text = f"Aussteller: Müller\n{files.ca.cert_pem.bytes().decode()}"
    assert make_context(TlsConfig(ca_pem=text)).cert_store_stats()["x509_ca"] == 1
