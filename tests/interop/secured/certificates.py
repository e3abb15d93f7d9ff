"""Write certificates as PEM files in the form that Kafka reads (PKCS#8)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

KEY_PASSWORD = "key-geheim"


class Certificates:
    """PEM files of the broker and of alice, signed by ca.pem.

    expired.pem is a certificate of alice, and late.pem one of the broker. Both expired yesterday.
    Only mallory.pem is signed by other-ca.pem. It names alice, too.
    """

    def __init__(self, folder: Path) -> None:
        trustme = pytest.importorskip("trustme")  # of the extra `test`, with cryptography
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )

        folder.mkdir(parents=True, exist_ok=True)
        authority, other = trustme.CA(), trustme.CA()
        self.ca, self.other_ca = folder / "ca.pem", folder / "other-ca.pem"
        authority.cert_pem.write_to_path(self.ca)
        other.cert_pem.write_to_path(self.other_ca)
        self.server, self.alice = folder / "server.pem", folder / "alice.pem"
        self.mallory, self.expired = folder / "mallory.pem", folder / "expired.pem"
        self.late = folder / "late.pem"
        yesterday = datetime.now(UTC) - timedelta(days=1)
        expired = authority.issue_cert("a@b.c", common_name="alice", not_after=yesterday)
        late = authority.issue_cert("127.0.0.1", common_name="broker", not_after=yesterday)
        for file, made, password in (
            (self.server, authority.issue_cert("127.0.0.1", common_name="broker"), None),
            (self.alice, authority.issue_cert("a@b.c", common_name="alice"), KEY_PASSWORD),
            (self.expired, expired, KEY_PASSWORD),
            (self.late, late, None),
            (self.mallory, other.issue_cert("a@b.c", common_name="alice"), KEY_PASSWORD),
        ):
            key = load_pem_private_key(made.private_key_pem.bytes(), None)
            lock = BestAvailableEncryption(password.encode()) if password else NoEncryption()
            chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
            file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock) + chain)
