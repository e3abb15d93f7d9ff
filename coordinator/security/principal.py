"""The principal of a connection, equal to Kafka's KafkaPrincipal."""

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """A type and a name, which ACLs write as one text such as `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """Return the principal of a text such as `User:alice`, or raise ValueError."""
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise ValueError(f"a principal looks like User:name, not {text}")
        return cls(kind, name)


ANONYMOUS = Principal(USER, "ANONYMOUS")  # for a connection without TLS certificate and login
