"""The index of all ACLs, in which a request is authorized by a few lookups.

For a principal and a resource type the index has the entries of each pattern, and the number of
prefix patterns of each length. The patterns that apply to a name are found by one lookup of the
literal name, one of the literal `*`, and one for each length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...runtime.steps import StepCounter, Steps
from ...wire.acls import WILDCARD, AclOperation, AclPermission, PatternType
from .bindings import AclBinding, AclFilter

_ALLOW, _DENY = AclPermission.ALLOW, AclPermission.DENY
_O = AclOperation
_IMPLIED_BY = {
    _O.DESCRIBE: (_O.READ, _O.WRITE, _O.DELETE, _O.ALTER),
    _O.DESCRIBE_CONFIGS: (_O.ALTER_CONFIGS,),
}
_Entries = dict[tuple[int, int], set[str]]  # (permission, operation) -> hosts
_Pattern = tuple[int, str]  # pattern type, name


def _keys(permission: int, operations: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple((int(permission), int(operation)) for operation in operations)


# The entries that decide about an operation. Only ALLOW entries imply other operations.
_ALLOWING = {int(op): _keys(_ALLOW, (op, _O.ALL, *_IMPLIED_BY.get(op, ()))) for op in _O}
_DENYING = {int(op): _keys(_DENY, (op, _O.ALL)) for op in _O}
# authorizeByResourceType ignores implied operations.
_ALLOWING_ANY = {int(op): _keys(_ALLOW, (op, _O.ALL)) for op in _O}


@dataclass(slots=True, eq=False)
class _Patterns:
    """The name patterns of the ACLs of one principal (or of `User:*`) for one resource type."""

    entries: dict[_Pattern, _Entries] = field(default_factory=dict[_Pattern, _Entries])
    prefix_lengths: dict[int, int] = field(default_factory=dict[int, int])

    def add(self, binding: AclBinding) -> None:
        pattern = (binding.pattern_type, binding.name)
        entries = self.entries.get(pattern)
        if entries is None:
            entries = self.entries[pattern] = {}
            if binding.pattern_type == PatternType.PREFIXED:
                length = len(binding.name)
                self.prefix_lengths[length] = self.prefix_lengths.get(length, 0) + 1
        entries.setdefault((binding.permission, binding.operation), set()).add(binding.host)

    def remove(self, binding: AclBinding) -> None:
        pattern = (binding.pattern_type, binding.name)
        entries = self.entries[pattern]
        hosts = entries[binding.permission, binding.operation]
        hosts.remove(binding.host)
        if hosts:
            return
        del entries[binding.permission, binding.operation]
        if entries:
            return
        del self.entries[pattern]
        if binding.pattern_type == PatternType.PREFIXED:
            length = len(binding.name)
            self.prefix_lengths[length] -= 1
            if not self.prefix_lengths[length]:
                del self.prefix_lengths[length]

    def applying_to(self, name: str) -> Iterator[_Entries]:
        """Yield the entries of each pattern that matches the resource name."""
        for literal in (name, WILDCARD) if name != WILDCARD else (name,):
            if entries := self.entries.get((PatternType.LITERAL, literal)):
                yield entries
        for length in self.prefix_lengths:
            if length <= len(name) and (
                entries := self.entries.get((PatternType.PREFIXED, name[:length]))
            ):
                yield entries


class AclTable:
    """All ACLs of a cluster, in the order of their creation.

    `generation` is a new object after each change, so that callers can cache the results of
    `decide`.
    """

    def __init__(self) -> None:
        self.generation = object()
        self._bindings: dict[AclBinding, None] = {}
        self._by_principal: dict[tuple[int, str], _Patterns] = {}  # (resource type, principal)
        self._resources: dict[int, dict[_Pattern, int]] = {}  # the number of ACLs of each pattern
        self._prefix_lengths: dict[int, dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._bindings)

    def __contains__(self, binding: AclBinding) -> bool:
        return binding in self._bindings

    def __iter__(self) -> Iterator[AclBinding]:
        return iter(self._bindings)

    def add(self, binding: AclBinding) -> bool:
        """Add an ACL. Return False if it already exists."""
        if binding in self._bindings:
            return False
        self.generation = object()
        self._bindings[binding] = None
        key = (binding.resource_type, binding.principal)
        patterns = self._by_principal.get(key)
        if patterns is None:
            patterns = self._by_principal[key] = _Patterns()
        patterns.add(binding)
        self._count(binding, 1)
        return True

    def remove(self, binding: AclBinding) -> bool:
        """Remove an ACL. Return False if it does not exist."""
        if binding not in self._bindings:
            return False
        self.generation = object()
        del self._bindings[binding]
        key = (binding.resource_type, binding.principal)
        patterns = self._by_principal[key]
        patterns.remove(binding)
        if not patterns.entries:
            del self._by_principal[key]
        self._count(binding, -1)
        return True

    def matching(
        self, wanted: AclFilter, counter: StepCounter | None = None
    ) -> Steps[list[AclBinding]]:
        """Return the ACLs that match a filter.

        ACLs that are added after the first step are not included.
        """
        only = wanted.only
        if only is not None:
            return [only] if only in self._bindings else []
        found: list[AclBinding] = []
        counter = counter or StepCounter()
        for binding in list(self._bindings):
            if wanted.matches(binding):
                found.append(binding)
            if counter.ends_step():
                yield
        return found

    def discarding(self) -> Steps[None]:
        """Free all ACLs in slices. The table must not be read afterwards."""
        counter = StepCounter()
        while self._bindings:
            self.remove(next(reversed(self._bindings)))
            if counter.ends_step():
                yield

    def decide(
        self, principals: Sequence[str], host: str, operation: int, resource_type: int, name: str
    ) -> bool | None:
        """Return whether the principals' ACLs allow the operation, or None if no ACL matches.

        If any DENY matches, the result is False. Otherwise one matching ALLOW is enough.
        """
        allowing, denying = _ALLOWING[operation], _DENYING[operation]
        is_allowed = None
        for principal in principals:
            patterns = self._by_principal.get((resource_type, principal))
            if patterns is None:
                continue
            for entries in patterns.applying_to(name):
                if _has(entries, denying, host):
                    return False
                if is_allowed is None and _has(entries, allowing, host):
                    is_allowed = True
        return is_allowed

    def has_any_for(self, resource_type: int, name: str) -> bool:
        """Return whether any ACL (literal, prefixed or `*`) applies to the resource."""
        patterns = self._resources.get(resource_type)
        if not patterns:
            return False
        literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
        return (
            (literal, name) in patterns
            or (literal, WILDCARD) in patterns
            or any(
                length <= len(name) and (prefixed, name[:length]) in patterns
                for length in self._prefix_lengths.get(resource_type, ())
            )
        )

    def allows_any(
        self, principals: Sequence[str], host: str, operation: int, resource_type: int
    ) -> Steps[bool]:
        """Return whether the operation may be allowed on some resource of this type.

        An ALLOW counts unless a DENY covers its whole pattern (KIP-679). An ALLOW of another
        operation that implies this one does not count. Prefixes are compared by characters, as in
        Kafka.
        """
        allowing, denying = _ALLOWING_ANY[operation], _DENYING[operation]
        found = [self._by_principal.get((resource_type, each)) for each in principals]
        tables = [patterns for patterns in found if patterns is not None]
        everything = (PatternType.LITERAL, WILDCARD)
        if any(_has(table.entries.get(everything, {}), denying, host) for table in tables):
            return False
        counter = StepCounter()
        for table in tables:
            for pattern, entries in list(table.entries.items()):
                if counter.ends_step():
                    yield
                if _has(entries, allowing, host) and (
                    pattern == everything
                    or not any(_covers(other, denying, host, pattern) for other in tables)
                ):
                    return True
        return False

    def _count(self, binding: AclBinding, by: int) -> None:
        resources = self._resources.setdefault(binding.resource_type, {})
        pattern = (binding.pattern_type, binding.name)
        before = resources.get(pattern, 0)
        if before + by:
            resources[pattern] = before + by
        else:
            del resources[pattern]
        is_new, is_gone = not before, not before + by
        if binding.pattern_type == PatternType.PREFIXED and (is_new or is_gone):
            lengths = self._prefix_lengths.setdefault(binding.resource_type, {})
            length = len(binding.name)
            lengths[length] = lengths.get(length, 0) + by
            if not lengths[length]:
                del lengths[length]


def _has(entries: _Entries, keys: tuple[tuple[int, int], ...], host: str) -> bool:
    for key in keys:
        hosts = entries.get(key)
        if hosts is not None and (WILDCARD in hosts or host in hosts):
            return True
    return False


def _covers(
    table: _Patterns, denying: tuple[tuple[int, int], ...], host: str, pattern: _Pattern
) -> bool:
    """Return whether a DENY covers a pattern, by the same literal name or a prefix of its name.

    table: the ACLs to search. denying: the operations and permissions that count as a DENY.
    """
    pattern_type, name = pattern
    if pattern_type == PatternType.LITERAL and _has(table.entries.get(pattern, {}), denying, host):
        return True
    return any(
        length <= len(name)
        and _has(table.entries.get((PatternType.PREFIXED, name[:length]), {}), denying, host)
        for length in table.prefix_lengths
    )
