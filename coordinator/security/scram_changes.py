"""The SCRAM credentials of users in the metadata (KIP-554)."""

from dataclasses import dataclass

from ...wire.security.scram_server import ScramCredential

MECHANISM_NAMES = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}  # by Kafka's ids
MECHANISM_IDS = {name: number for number, name in MECHANISM_NAMES.items()}


@dataclass(frozen=True, slots=True)
class ScramChange:
    """A change of a user's credential for one mechanism. With 0 iterations it is removed."""

    name: str
    mechanism: int
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int = 0

    @property
    def credential(self) -> ScramCredential | None:
        """Return the credential to store, or None if the change removes it."""
        if not self.iterations:
            return None
        return ScramCredential(self.salt, self.stored_key, self.server_key, self.iterations)

    def __repr__(self) -> str:
        return f"ScramChange({self.name!r}, {MECHANISM_NAMES.get(self.mechanism)}, [hidden])"
