"""Test that the survey of a cluster with SASL logs in first, or fails with an error message."""

import asyncio
from typing import Any

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.conformance.survey import Survey
from oncelog.proof.conformance.surveying import survey
from oncelog.wire.security.secret import Secret

from ...client.security.listener import (
    API_VERSIONS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Listener,
)

ALICE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": Secret("geheim"),
}


async def surveyed(config: dict[str, Any]) -> tuple[Survey, list[list[int]]]:
    async with Listener(has_sasl=True).running(None) as listener:
        line = {"bootstrap.servers": f"{listener.host}:{listener.port}"}
        return await asyncio.to_thread(survey, config | line, print, answer_s=1), listener.asked


async def test_conformance_survey_of_a_secured_cluster_logs_in_first() -> None:
    found, asked = await surveyed(ALICE)
    assert found.apis[API_VERSIONS].came[0].came == "served"
    assert found.apis[METADATA].came[12].came == "served"
    assert found.apis[SASL_HANDSHAKE].came[1].came == "not asked"
    (keys,) = asked
    assert keys[:2] == [SASL_HANDSHAKE, SASL_AUTHENTICATE]
    assert set(keys[2:]) == {API_VERSIONS, METADATA}, "one connection, one login"


async def test_conformance_survey_with_a_wrong_password_reports_the_refused_login() -> None:
    with pytest.raises(Failure, match="alice"):
        await surveyed(ALICE | {"sasl.password": Secret("wrong")})
