"""Run each client's process, which gets one login at a time and reports its result."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...programs import printed_by
from ..kafka_peer import java_source
from .login_clients import OF_PYTHON, PATIENCE_S
from .logins import MODULE

PROGRAMS = Path(__file__).with_name("programs")
KAFKAJS = "2.2.4"
INSTALL_S = 120
BUILD_S = 600  # the first time on a machine; Go caches what it has compiled
FRANZ_GO = "v1.22.3"
GO_MODULES = [f"github.com/twmb/franz-go/pkg/kgo@{FRANZ_GO}", "github.com/twmb/franz-go/pkg/kmsg"]
NAMES = (*OF_PYTHON, "java", "kafkajs", "franz-go")


class Player:
    """The process of one client library, which tries one login after another."""

    def __init__(
        self, command: list[str], folder: Path, *, is_java: bool = False, opens_keys: bool = True
    ) -> None:
        self._folder, self._is_java, self._opens_keys = folder, is_java, opens_keys
        self._count = 0
        self._process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def log_in(self, values: dict[str, Any]) -> str:
        """Try to log in with these settings, and return "in" or the client's error message."""
        if not self._opens_keys and (pem := values.get("ssl.keystore.location")):
            unlocked = _unlocked(Path(pem), values["ssl.key.password"], self._folder)
            values = {**values, "ssl.keystore.location": str(unlocked)}
            del values["ssl.key.password"]
        line = json.dumps(values)
        if self._is_java:
            self._count += 1
            file = self._folder / f"case-{self._count}.properties"
            file.write_text("".join(f"{k}={v}\n" for k, v in java_properties(values).items()))
            line = str(file)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline().rstrip("\n")
        assert said, "the client's process has ended"
        return said if self._is_java else json.loads(said)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def player(name: str, folder: Path, token_url: str) -> Iterator[Player]:
    """Yield the running process of a client library. The process ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    is_java = name == "java"
    if is_java:
        command = java_source(PROGRAMS / "LoginScript.java")
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token_url}"
        command.insert(1, allowed)
        command.insert(1, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
    elif name == "kafkajs":
        printed_by(["npm", "install", "--no-audit", "--no-fund", f"kafkajs@{KAFKAJS}"],
                   INSTALL_S, cwd=folder)  # fmt: skip
        shutil.copy(PROGRAMS / "logins.js", folder)
        command = ["node", "logins.js"]
    elif name == "franz-go":
        shutil.copy(PROGRAMS / "logins.go", folder)
        for step in (
            ["mod", "init", "logins"],
            ["get", *GO_MODULES],
            ["build", "-o", "logins", "."],
        ):
            printed_by(["go", *step], BUILD_S, cwd=folder)
        command = [str(folder / "logins")]
    else:
        command = [sys.executable, "-P", "-c", _start(), name]
    opens_keys = name not in ("java", "franz-go")
    running = Player(command, folder, is_java=is_java, opens_keys=opens_keys)
    try:
        yield running
    finally:
        running.close()


def missing(name: str) -> str:
    """Return the program that a client lacks on this machine, or "" if it can run."""
    program = {"java": "javac", "kafkajs": "npm", "franz-go": "go"}.get(name)
    return f"no {program}" if program and shutil.which(program) is None else ""


def java_properties(values: dict[str, Any]) -> dict[str, str]:
    """Return librdkafka's settings `values` under the names of Java's clients."""
    limit_ms = f"{PATIENCE_S * 1000:.0f}"
    found = {"request.timeout.ms": limit_ms, "default.api.timeout.ms": limit_ms}
    for ours, theirs in (
        ("bootstrap.servers", "bootstrap.servers"),
        ("security.protocol", "security.protocol"),
        ("ssl.ca.location", "ssl.truststore.location"),
        ("ssl.keystore.location", "ssl.keystore.location"),
        ("ssl.key.password", "ssl.key.password"),
        ("sasl.mechanism", "sasl.mechanism"),
    ):
        if ours in values:
            found[theirs] = values[ours]
    found |= {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
    mechanism, prefix = values.get("sasl.mechanism"), "sasl.oauthbearer."
    if mechanism == "OAUTHBEARER":
        user = values[f"{prefix}client.credentials.client.id"]
        secret = values[f"{prefix}client.credentials.client.secret"]
        module = f"{MODULE}.oauthbearer.OAuthBearerLoginModule"
        found["sasl.jaas.config"] = f'{module} required clientId="{user}" clientSecret="{secret}";'
        handler = f"{MODULE}.oauthbearer.OAuthBearerLoginCallbackHandler"
        found["sasl.login.callback.handler.class"] = handler
        found[f"{prefix}token.endpoint.url"] = values[f"{prefix}token.endpoint.url"]
    elif mechanism is not None:
        kind = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = f'username="{values["sasl.username"]}" password="{values["sasl.password"]}"'
        found["sasl.jaas.config"] = f"{MODULE}.{kind} required {login};"
    return found


def _unlocked(pem: Path, password: str, folder: Path) -> Path:
    """Write a key without its password, and its certificates, for Java and Go."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    content = pem.read_bytes()
    key = load_pem_private_key(content, password.encode())
    found = folder / pem.name
    chain = content[content.index(b"-----BEGIN CERTIFICATE") :]
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    found.write_bytes(plain + chain)
    return found


def _start() -> str:
    root = str(Path(__file__).parents[3])
    module = "tests.interop.secured.login_clients"
    return (
        f"import runpy, sys; sys.path.insert(0, {root!r}); "
        f"runpy.run_module({module!r}, None, '__main__', True)"
    )
