"""The configuration keys of the authorizer (Kafka: StandardAuthorizer)."""

from dataclasses import dataclass

from ...coordinator.security.principal import Principal
from .keys import BOOLEAN, STRING, one_of, setting
from .quota_keys import QuotaSettings

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _are_principals(text: str) -> str | None:
    try:
        principals_of(text)
    except ValueError as problem:
        return str(problem)
    return None


def principals_of(text: str) -> frozenset[str]:
    """Return the principals of a list separated by semicolons, since names may contain commas."""
    each = (part.strip() for part in text.split(";"))
    return frozenset(str(Principal.parse(part)) for part in each if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerSettings(QuotaSettings):
    """The typed values of the authorizer's keys."""

    authorizer_class_name: str = setting(
        "authorizer.class.name",
        STRING,
        "",
        f"With {STANDARD_AUTHORIZER}, ACLs restrict clients. If empty, nothing is restricted.",
        one_of("", STANDARD_AUTHORIZER),
        shown_unset="empty",
    )
    super_users: str = setting(
        "super.users",
        STRING,
        "",
        "The principals that are not restricted by ACLs, as User:admin;User:other.",
        _are_principals,
        shown_unset="hidden",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        "false",
        "Whether everybody may access a resource without ACLs.",
        shown_unset="hidden",
    )
