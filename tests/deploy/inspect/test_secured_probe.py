"""Test that the probe measures after TLS and SASL, and reports a failed login in a sentence."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.inspect.probe import Probe, ProbeResult, Target
from oncelog.wire.security.secret import Secret

from ...client.security.listener import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Listener

ALICE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": Secret("geheim"),
}


def certificates(folder: Path) -> tuple[ssl.SSLContext, str]:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return context, str(folder / "ca.pem")


async def probed(
    config: dict[str, Any], context: ssl.SSLContext | None = None, *, has_sasl: bool = True
) -> tuple[ProbeResult, list[list[int]]]:
    async with Listener(has_sasl=has_sasl).running(context) as listener:
        target = Target(1, listener.host, listener.port)

        def watch() -> ProbeResult:
            with Probe([target], config=config) as probe:  # returns after the answer
                return probe.stop()

        return await asyncio.to_thread(watch), listener.asked


@pytest.mark.parametrize("has_tls", [False, True])
async def test_probe_with_a_login_measures_only_requests_after_the_login(tmp_path, has_tls):
    config, context = ALICE, None
    if has_tls:
        context, ca = certificates(tmp_path)
        config = ALICE | {"security.protocol": "SASL_SSL", "ssl.ca.location": ca}
    result, (asked,) = await probed(config, context)
    assert result.nodes[0].answers >= 1 and result.nodes[0].lost_connections == 0
    assert asked[:2] == [SASL_HANDSHAKE, SASL_AUTHENTICATE]
    assert set(asked[2:]) == {API_VERSIONS}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"sasl.password": Secret("falsch")}, "refused user alice by PLAIN"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "does not offer SCRAM-SHA-256; it offers: PLAIN"),
    ],
)
async def test_probe_with_a_refused_login_raises_immediately(wrong, words):
    async with asyncio.timeout(20):
        with pytest.raises(Failure, match=words) as failure:
            await probed(ALICE | wrong)
    assert "falsch" not in str(failure.value)


async def test_probe_of_a_broker_with_an_untrusted_certificate_raises_immediately(tmp_path):
    context, _ = certificates(tmp_path)
    async with asyncio.timeout(20):
        with pytest.raises(Failure, match="not signed by a CA that we trust"):
            await probed({"security.protocol": "SSL"}, context, has_sasl=False)
