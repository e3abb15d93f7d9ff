"""The verification of OAUTHBEARER tokens, which must be signed by a key of a JWKS.

The keys come from `sasl.oauthbearer.jwks.endpoint.url`, a file or a URL, which is read in a thread.
A file is read when it changes, a URL every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and sooner
after a failure. A token signed by an unknown key is refused, and the keys are read again, at most
every 10 s, so that a retry may succeed. Only signatures by private keys are accepted, never `none`
and never a shared secret.
"""

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ....runtime.rate_limited_log import LimitedLog
from ....wire.errors import InvalidConfig
from ....wire.printable import printable
from ....wire.security.oauthbearer_server import TokenIdentity
from ....wire.security.sasl import FailedLogin
from ...config.listener_keys import ListenerSettings

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
KEYS_BYTES_MAX = 1024 * 1024
WORDS_MAX = 200  # the length limit of the log line about a refused token
TIME_MAX_S = 2**40  # far in the future, but still within 64 bits as ms
FETCH_TIMEOUT_S = 10.0  # the limit for reading all of a URL
AGAIN_S = 10.0  # the pause after a failed URL, or after a read of the keys for an unknown key
Read = Callable[[], bytes]


class TokenVerifier:
    """The keys of one listener, and its requirements for tokens.

    The constructor raises InvalidConfig.
    """

    def __init__(
        self, settings: ListenerSettings, now_s: Callable[[], float], log: logging.Logger
    ) -> None:
        """Read the settings. `now_s` returns wall-clock seconds."""
        self._settings, self._now_s, self._log = settings, now_s, log
        self._refusals = LimitedLog(log)
        url = urlsplit(settings.sasl_oauthbearer_jwks_endpoint_url)
        if url.scheme not in ("file", "https", "http"):
            raise InvalidConfig(
                "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url: file:///..., or https://..."
            )
        _check_claims(settings, log)
        self._file = Path(unquote(url.path)) if url.scheme == "file" else None
        self._keys: Mapping[str, Any] = {}
        self._read_at: object = None
        self._again_s = -inf  # the earliest time to read a URL again after a failure
        self._misses_key = False  # True if a token was signed by an unknown key
        self._expedited_s = -inf  # the earliest time to read the keys again for an unknown key
        self.fetching: threading.Thread | None = None
        if self._file is not None:
            self._read_at = self._due()
            self._keys = read_keys(self._read())

    def refresh(self) -> None:
        """Read the keys if they may have changed. This blocks, so it must be called in a thread."""
        due, now_s = self._due(), time.monotonic()
        if due == self._read_at:
            if not self._misses_key or now_s < self._expedited_s:
                return
            self._expedited_s = now_s + AGAIN_S
        if self._file is None and now_s < self._again_s:
            return
        self._misses_key = False
        try:
            self._keys = read_keys(self._read())
        except InvalidConfig as problem:
            self._log.error("the keys that verify tokens cannot be loaded: %s", problem)
            if self._file is None:
                self._again_s = time.monotonic() + AGAIN_S
                return
        self._read_at = due

    def verify(self, token: str) -> TokenIdentity:
        """Return the identity in a token, or raise FailedLogin and log the reason."""
        try:
            return self._verified(token)
        except FailedLogin as problem:
            why = printable(str(problem))[:WORDS_MAX]
            self._refusals.log(
                logging.INFO, "token", time.monotonic(), "a token is refused: %s", why
            )
            raise

    def _verified(self, token: str) -> TokenIdentity:
        import jwt

        settings, now_s = self._settings, self._now_s()
        audiences = settings.sasl_oauthbearer_expected_audience
        try:
            header = jwt.get_unverified_header(token)
            key = self._key(header.get("kid"))
            if key is None:
                raise FailedLogin("the key that signed it is not among those of the JWKS")
            if header.get("alg") not in ALGORITHMS:
                raise FailedLogin("its algorithm is not served")
            claims = jwt.decode(
                token,
                key,
                algorithms=[header["alg"]],
                audience=list(audiences),
                issuer=settings.sasl_oauthbearer_expected_issuer or None,
                options={
                    "require": ["exp", "iat"],  # as in Kafka
                    "verify_aud": bool(audiences),
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError as problem:
            raise FailedLogin(str(problem)) from None
        name = claims.get(settings.sasl_oauthbearer_sub_claim_name)
        skew_s = settings.sasl_oauthbearer_clock_skew_seconds
        ends_s, issued_s = _time_s(claims["exp"]), _time_s(claims["iat"])
        begins_s = _time_s(claims.get("nbf", issued_s))
        if not isinstance(name, str) or not name:
            raise FailedLogin(f"it has no claim {settings.sasl_oauthbearer_sub_claim_name}")
        if not (begins_s - skew_s <= now_s < ends_s + skew_s):
            raise FailedLogin("it has expired, or is not valid yet")
        return TokenIdentity(name, max(1, int((ends_s + skew_s - now_s) * 1000)))

    def _key(self, kid: object) -> Any:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        key = self._keys.get(kid) if isinstance(kid, str) else None
        self._misses_key |= key is None
        return key

    def _due(self) -> object:
        """Return a value that differs from the previous one when the keys must be read again."""
        if self._file is None:
            refresh_s = self._settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
            return int(time.monotonic() / refresh_s)
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> bytes:
        if self._file is None:
            return self._fetch(self._settings.sasl_oauthbearer_jwks_endpoint_url)
        try:
            with self._file.open("rb") as file:
                return file.read(KEYS_BYTES_MAX + 1)
        except OSError as problem:
            raise InvalidConfig(f"{self._file} cannot be read: {problem}") from None

    def _fetch(self, url: str) -> bytes:
        """Read a URL in its own thread, which is abandoned if it takes too long."""
        if self.fetching is not None and self.fetching.is_alive():
            raise InvalidConfig(f"{url} is still being read")
        outcome: list[bytes | Exception] = []

        def fetch() -> None:
            try:
                with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as answer:
                    outcome.append(answer.read(KEYS_BYTES_MAX + 1))
            except (OSError, HTTPException, ValueError) as problem:
                outcome.append(problem)

        self.fetching = threading.Thread(target=fetch, name="oncelog-jwks", daemon=True)
        self.fetching.start()
        self.fetching.join(FETCH_TIMEOUT_S)
        if not outcome:
            raise InvalidConfig(f"{url} was not read within {FETCH_TIMEOUT_S:g} s")
        if isinstance(outcome[0], Exception):
            raise InvalidConfig(f"{url} cannot be read: {outcome[0]}")
        return outcome[0]


def _check_claims(settings: ListenerSettings, log: logging.Logger) -> None:
    """Raise InvalidConfig for a claim that is neither verified nor opted out of.

    Each opt-out that has an effect is logged, as in Kafka.
    """
    missing: list[str] = []
    for claim, expected, is_allowed in (
        (
            "audience",
            settings.sasl_oauthbearer_expected_audience,
            settings.sasl_oauthbearer_allow_unverified_audience,
        ),
        (
            "issuer",
            settings.sasl_oauthbearer_expected_issuer,
            settings.sasl_oauthbearer_allow_unverified_issuer,
        ),
    ):
        if expected:
            continue
        key = f"sasl.oauthbearer.expected.{claim}"
        opt_out = f"sasl.oauthbearer.allow.unverified.{claim}"
        if is_allowed:
            log.warning(
                "tokens of any %s are accepted: %s is not set, and %s is true", claim, key, opt_out
            )
        else:
            missing.append(
                f"OAUTHBEARER needs {key}: without it tokens of any {claim} would be accepted. "
                f"To accept them, set {opt_out}=true."
            )
    if missing:
        raise InvalidConfig("\n".join(missing))


def _time_s(claim: object) -> float:
    """Return the seconds of a time claim in a token, or raise FailedLogin for an invalid time.

    JSON allows infinity and integers of any length.
    """
    if not isinstance(claim, int | float) or not -TIME_MAX_S <= claim <= TIME_MAX_S:
        raise FailedLogin("a claim that must be a time is no number, or out of range")
    return claim


def read_keys(data: bytes) -> dict[str, Any]:
    """Parse the keys of a JWKS by their ids, or raise InvalidConfig."""
    try:
        import jwt
    except ImportError:
        raise InvalidConfig("OAUTHBEARER needs PyJWT: the extra `secure` brings it.") from None
    try:
        if len(data) > KEYS_BYTES_MAX:
            raise ValueError("it is too large")
        found = jwt.PyJWKSet.from_dict(json.loads(data))
    except (ValueError, TypeError, AttributeError, RecursionError, jwt.PyJWTError) as problem:
        raise InvalidConfig(f"the JWKS of OAUTHBEARER cannot be used: {problem}") from None
    return {key.key_id or "": key for key in found.keys if key.algorithm_name in ALGORITHMS}
