"""The quotas of users, client ids and addresses, and the lookup of a client's quota.

An entity names a user, a client id, both, or an IP address. The empty name, which no user has,
stands for the default. None stands for a part that the entity lacks.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...replication.peer.codec import OMIT_DEFAULT
from ...wire.errors import InvalidRequest

DEFAULT = ""
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
# A percentage of a thread's time, which may be a fraction.
REQUEST_PERCENTAGE = "request_percentage"
KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
CONNECTION_CREATION_RATE = "connection_creation_rate"  # the only key of addresses
NAME_BYTES_MAX = 1_000
RATE_MAX, CONNECTIONS_MAX = 2**63 - 1, 2**31 - 1


class QuotaEntity(NamedTuple):
    """The user, the client id, both, or the address, to which a quota applies."""

    user: str | None
    client_id: str | None
    ip: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """Quotas of one entity, each with its value. None removes a quota."""

    user: str | None
    client_id: str | None
    values: tuple[tuple[str, float | None], ...]
    ip: str | None = field(default=None, metadata=OMIT_DEFAULT)

    @property
    def entity(self) -> QuotaEntity:
        return QuotaEntity(self.user, self.client_id, self.ip)


class ClientLimit(NamedTuple):
    """A quota that applies to a client. All clients with the same entity share it."""

    rate: float
    shared_by: QuotaEntity


class QuotaTable:
    """All quotas of a cluster, in the order in which they were first set."""

    def __init__(self) -> None:
        self._values: dict[QuotaEntity, dict[str, float]] = {}
        self._entities_with: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, entity: QuotaEntity) -> bool:
        return entity in self._values

    def items(self) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        """Iterate over the entities and their quotas."""
        return iter(self._values.items())

    def has(self, key: str) -> bool:
        """Return whether any entity has a quota of this key."""
        return self._entities_with[key] > 0

    def put(self, entity: QuotaEntity, key: str, value: float | None) -> bool:
        """Set a quota, or remove it if `value` is None. Return whether the table has changed."""
        before = self._values.get(entity, {})
        if before.get(key) == value:
            return False
        after = {name: each for name, each in before.items() if name != key}
        if value is not None:
            after[key] = value
        self._entities_with[key] += (value is not None) - (key in before)
        if after:
            self._values[entity] = after
        else:
            del self._values[entity]
        return True

    def limit(self, key: str, user: str, client_id: str) -> ClientLimit | None:
        """Return the most specific quota of a client, or None."""
        for entity in (
            QuotaEntity(user, client_id),
            QuotaEntity(user, DEFAULT),
            QuotaEntity(user, None),
            QuotaEntity(DEFAULT, client_id),
            QuotaEntity(DEFAULT, DEFAULT),
            QuotaEntity(DEFAULT, None),
            QuotaEntity(None, client_id),
            QuotaEntity(None, DEFAULT),
        ):
            rate = self._values.get(entity, {}).get(key)
            if rate is not None:
                shared_by = QuotaEntity(
                    None if entity.user is None else user,
                    None if entity.client_id is None else client_id,
                )
                return ClientLimit(rate, shared_by)
        return None

    def connection_rate(self, address: str) -> float | None:
        """Return the limit of new connections a second from an address, or None without a quota."""
        for name in (address, DEFAULT):
            rate = self._values.get(QuotaEntity(None, None, name), {}).get(CONNECTION_CREATION_RATE)
            if rate is not None:
                return rate
        return None


def check_quota(key: str, value: float | None, *, of_address: bool = False) -> None:
    """Raise INVALID_REQUEST for an unknown or invalid quota. A value of None is valid."""
    keys = (CONNECTION_CREATION_RATE,) if of_address else KEYS
    if key not in keys:
        raise InvalidRequest(f"Invalid configuration key {key}; served are {', '.join(keys)}")
    if value is None:
        return
    if not value > 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    if key == REQUEST_PERCENTAGE:
        return
    if of_address and value > CONNECTIONS_MAX:
        raise InvalidRequest(f"Proposed value for {key} is too large for an INT.")
    if value > RATE_MAX:
        raise InvalidRequest(f"Proposed value for {key} is too large for a LONG.")
    if value % 1.0 > 1e-6:
        raise InvalidRequest(f"{key} cannot be a fractional value.")
