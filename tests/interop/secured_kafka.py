"""One Apache Kafka with a listener for each security.protocol, every mechanism, and ACLs.

The plain listener is the administrator's: whoever comes there is a super user. Certificates are
made here; tokens come from a small provider, whose keys Kafka fetches over HTTP.
"""

import base64
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from oncelog.client.connection import Connection
from oncelog.wire.messages import control

from .kafka_peer import KafkaPeer, free_ports

USERS = {"alice": "alice-geheim", "mallory": "mallory-geheim"}
CLIENT_SECRET, KEY_PASSWORD = "client-geheim", "key-geheim"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 2_000  # of SCRAM-SHA-256 in plain text: KIP-368
MODULE = "org.apache.kafka.common.security"
CREATE_ACLS = 30
RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional_id": 5}
OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8}
ALLOW, LITERAL = 3, 3


def _part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class TokenProvider(ThreadingHTTPServer):
    """Client credentials on /token, its public key on /jwks."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _TokenRequests)
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.issued = 0
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    def url(self, path: str) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_port}/{path}"

    def token(self, subject: str, *, life_s: float = 3600, audience: str = "kafka") -> str:
        """A signed JWT."""
        self.issued += 1
        now = int(time.time())
        claims = {"sub": subject, "iat": now, "exp": int(now + life_s), "aud": audience,
                  "iss": "tests", "scope": "kafka"}  # fmt: skip
        signed = f"{_part({'alg': 'RS256', 'typ': 'JWT', 'kid': 'one'})}.{_part(claims)}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_part(signature)}"

    def jwks(self) -> dict[str, Any]:
        """Its public key."""
        numbers = self._key.public_key().public_numbers()
        n, e = (_part(v.to_bytes((v.bit_length() + 7) // 8, "big")) for v in (numbers.n, numbers.e))
        key = {"kty": "RSA", "kid": "one", "alg": "RS256", "use": "sig", "n": n, "e": e}
        return {"keys": [key]}

    def close(self) -> None:
        """The end."""
        self.shutdown()
        self._thread.join()
        self.server_close()


class _TokenRequests(BaseHTTPRequestHandler):
    server: TokenProvider

    def do_GET(self) -> None:
        self._send(200, self.server.jwks())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        basic = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        name, _, secret = basic.partition(":")
        if secret != CLIENT_SECRET:
            self._send(401, {"error": "invalid_client"})
        else:
            self._send(200, {"access_token": self.server.token(name), "token_type": "Bearer"})

    def _send(self, status: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Certificates:
    """PEM files: Kafka's own, and those of alice; ca.pem signs them, other-ca.pem nothing."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority, other = trustme.CA(), trustme.CA()
        self.ca, self.other_ca = folder / "ca.pem", folder / "other-ca.pem"
        authority.cert_pem.write_to_path(self.ca)
        other.cert_pem.write_to_path(self.other_ca)
        self.server, self.alice = folder / "server.pem", folder / "alice.pem"
        self.mallory = folder / "mallory.pem"
        for file, made, password in (
            (self.server, authority.issue_cert("127.0.0.1", common_name="broker"), None),
            (self.alice, authority.issue_cert("a@b.c", common_name="alice"), KEY_PASSWORD),
            (self.mallory, other.issue_cert("a@b.c", common_name="alice"), KEY_PASSWORD),
        ):
            key = load_pem_private_key(made.private_key_pem.bytes(), None)
            lock = BestAvailableEncryption(password.encode()) if password else NoEncryption()
            chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
            file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock) + chain)


class SecuredKafka(KafkaPeer):
    """See the top of the file."""

    def __init__(self, folder: Path) -> None:
        self.provider = TokenProvider()
        self.files = Certificates(folder / "certificates")
        names = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        urls = f"{self.provider.url('jwks')},{self.provider.url('token')}"
        scram = [
            option
            for user, password in USERS.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for option in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
        ]
        super().__init__(
            folder,
            flags=(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}",),
            format_options=scram,
            **self._settings_of(),
        )

    def more_listeners(self) -> dict[str, int]:
        """One for each protocol."""
        return self.ports

    def address(self, protocol: str) -> str:
        """The bootstrap line of a listener."""
        return f"127.0.0.1:{self.ports[protocol]}"

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.provider.close()

    def _settings_of(self) -> dict[str, str]:
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.files.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.files.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": r"RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": self.provider.url("jwks"),
            "sasl.oauthbearer.expected.audience": "kafka",
            "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": str(SESSION_MS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        for listener in ("sasl_ssl", "sasl_plaintext"):
            prefix = f"listener.name.{listener}"
            settings |= {
                f"{prefix}.plain.sasl.jaas.config":
                    f"{MODULE}.plain.PlainLoginModule required {users};",
                f"{prefix}.scram-sha-256.sasl.jaas.config":
                    f"{MODULE}.scram.ScramLoginModule required;",
                f"{prefix}.scram-sha-512.sasl.jaas.config":
                    f"{MODULE}.scram.ScramLoginModule required;",
                f"{prefix}.oauthbearer.sasl.jaas.config":
                    f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
                f"{prefix}.oauthbearer.sasl.server.callback.handler.class":
                    f"{MODULE}.oauthbearer.OAuthBearerValidatorCallbackHandler",
            }  # fmt: skip
        return settings

    async def allow(self, user: str, kind: str, name: str, *operations: str) -> None:
        """Grant operations on one resource."""
        host, port = self.bootstrap.split(":")
        connection = await Connection.open(host, int(port))
        creations = [
            {
                "resource_type": RESOURCES[kind],
                "resource_name": name,
                "resource_pattern_type": LITERAL,
                "principal": f"User:{user}",
                "host": "*",
                "operation": OPERATIONS[operation],
                "permission_type": ALLOW,
            }
            for operation in operations
        ]
        request = {"creations": creations}
        control.check_names(CREATE_ACLS, "request", request)
        body = control.encode_request(CREATE_ACLS, 3, request)
        answer = control.decode_response(
            CREATE_ACLS, 3, await connection.send(CREATE_ACLS, 3, [body])
        )
        assert [r.error_code for r in answer.results] == [0] * len(creations), answer
        connection.close()


@contextlib.contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """It runs."""
    peer = SecuredKafka(folder)
    with peer:
        yield peer
