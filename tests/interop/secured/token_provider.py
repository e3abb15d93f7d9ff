"""A small OAuth provider over HTTP, with the client credentials grant and a signing key."""

import base64
import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CLIENT_SECRET = "client-geheim"
ISSUER = "tests"
STRANGER = "stranger"  # a user with tokens for others


def _part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class TokenProvider(ThreadingHTTPServer):
    """A server that issues tokens on /token and publishes its public key on /jwks."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _TokenRequests)
        from cryptography.hazmat.primitives.asymmetric import rsa

        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.issued = 0
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"

    def token(self, subject: str, *, life_s: float = 3600, audience: str = "kafka") -> str:
        self.issued += 1
        now = int(time.time())
        claims = {"sub": subject, "iat": now, "exp": int(now + life_s), "aud": audience,
                  "iss": ISSUER, "scope": "kafka"}  # fmt: skip
        signed = f"{_part({'alg': 'RS256', 'typ': 'JWT', 'kid': 'one'})}.{_part(claims)}"
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_part(signature)}"

    def jwks(self) -> dict[str, Any]:
        numbers = self._key.public_key().public_numbers()
        n, e = (_part(v.to_bytes((v.bit_length() + 7) // 8, "big")) for v in (numbers.n, numbers.e))
        key = {"kty": "RSA", "kid": "one", "alg": "RS256", "use": "sig", "n": n, "e": e}
        return {"keys": [key]}

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _TokenRequests(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send(200, self._provider().jwks())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        basic = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        name, _, secret = basic.partition(":")
        if secret != CLIENT_SECRET:
            self._send(401, {"error": "invalid_client"})
        else:
            audience = "others" if name == STRANGER else "kafka"
            token = self._provider().token(name, audience=audience)
            self._send(200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600})

    def _provider(self) -> TokenProvider:
        assert isinstance(self.server, TokenProvider)
        return self.server

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
