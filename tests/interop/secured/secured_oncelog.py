"""Run one oncelog broker with the listeners, users and tokens of `SecuredKafka`."""

import asyncio
import hashlib
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from oncelog.client import Admin
from oncelog.wire.errors import KafkaError

from ..kafka_peer import free_ports
from .certificates import Certificates
from .logins import MECHANISMS, MODULE, USERS, Logins
from .token_provider import ISSUER, TokenProvider

START_S = 60.0
ALTER_USER_SCRAM_CREDENTIALS = 51
SCRAM = {1: "sha256", 2: "sha512"}
ITERATIONS = 4_096


class SecuredOncelog(Logins):
    """An oncelog broker with security, used as a context manager."""

    name = "oncelog"

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.folder = folder
        self.files, self.provider = Certificates(folder / "certificates"), TokenProvider()
        names = ("PLAINTEXT", "SSL", "TLS", "LATE", "SASL_SSL", "SASL_PLAINTEXT")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.bootstrap = self.address("PLAINTEXT")
        self._peers = tempfile.TemporaryDirectory(prefix="oncelog-")
        users = "".join(f' user_{name}="{password}"' for name, password in USERS.items())
        self._settings = {
            "node.id": "1",
            "cluster.id": "logins",
            "listeners": ",".join(
                f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()
            ),
            "listener.security.protocol.map": ",".join(
                f"{each}:{'SSL' if each in ('TLS', 'LATE') else each}" for each in self.ports
            ),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.late.ssl.keystore.location": str(self.files.late),
            "log.dirs": str(folder / "data"),
            "oncelog.voters": "1",
            "oncelog.peer.directory": self._peers.name,
            "ssl.keystore.location": str(self.files.server),
            "ssl.truststore.location": str(self.files.ca),
            "ssl.principal.mapping.rules": r"RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "plain.sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required{users};",
            "sasl.oauthbearer.jwks.endpoint.url": self.provider.url("jwks"),
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Return the path of the broker's log file."""
        return self.folder / "node-1.log"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.provider.close()
        self._peers.cleanup()

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "node-1.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        command = [sys.executable, "-P", "-m", "oncelog.node", "--config", str(file)]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ)
            )
        deadline = time.monotonic() + START_S
        while True:
            assert self._process.poll() is None, self.log.read_text()[-2000:]
            try:
                asyncio.run(self._add_users())
                return
            except KafkaError:
                assert time.monotonic() < deadline, self.log.read_text()[-2000:]
                time.sleep(0.1)

    async def _add_users(self) -> None:
        upsertions: list[dict[str, Any]] = []
        for name, password in USERS.items():
            for mechanism, hash_name in SCRAM.items():
                salt = secrets.token_bytes(16)
                salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, ITERATIONS)
                upsertions.append({
                    "name": name, "mechanism": mechanism, "iterations": ITERATIONS, "salt": salt,
                    "salted_password": salted,
                })  # fmt: skip
        async with Admin(self.bootstrap, timeout_ms=5_000) as admin:
            connection = await admin.view.any_broker()
            request = {"deletions": [], "upsertions": upsertions}
            answer = await connection.call(ALTER_USER_SCRAM_CREDENTIALS, request)
        assert [result.error_code for result in answer.results] == [0] * len(USERS), answer
