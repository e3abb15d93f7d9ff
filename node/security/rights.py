"""The rights that a request requires, given in each row of the dispatch table.

`judge` applies the rules of a row in their order. A missing `Right` refuses the whole request. An
`EachItem` removes the refused items from the request, or refuses the whole request
(`refuses_all`). The row's `on_error` makes the answers to these items, unless the `EachItem` has a
`refuse`. An `OfAnswer` leaves only the permitted items in an answer. `ByHandler` lists
the rights that a handler checks itself, because they depend on more than the request.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...runtime.steps import StepCounter, Steps
from ...wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from ...wire.errors import KafkaError, UnknownTopicId
from .access import Access

Resource = tuple[ResourceType, str]
Refuse = Callable[[Any, KafkaError], Any]
ZERO_ID = bytes(16)
CLUSTER: Resource = (ResourceType.CLUSTER, CLUSTER_NAME)


@dataclass(frozen=True, slots=True)
class Right:
    """A right to any one of several operations on one resource.

    If `resource` returns None for a request, the request needs no right.
    """

    operations: tuple[AclOperation, ...]
    resource_types: tuple[ResourceType, ...]
    resource: Callable[[Any], Resource | None]

    def refusal(self, access: Access, request: Any) -> KafkaError | None:
        """Return the error if the client may perform none of the operations, or None if it may."""
        resource = self.resource(request)
        if resource is None or any(access.allows(each, *resource) for each in self.operations):
            return None
        return access.refusal(self.operations[-1], *resource)


@dataclass(frozen=True, slots=True)
class EachItem:
    """A right to an operation on the resource of each item in an array of the request.

    resource: called with state, request and item. It returns the resource, or None if the item
    names no resource and needs no right. It may raise an error, which refuses the item.
    unless: a right that makes the rights on single items unnecessary.
    refuse: returns the answer to refused items. Without it the row's on_error does.
    refuses_all: one refused item refuses the whole request.
    """

    operation: AclOperation
    resource_types: tuple[ResourceType, ...]
    array: str
    resource: Callable[[Any, Any, Any], Resource | None]
    unless: Right | None = None
    refuse: Refuse | None = None
    refuses_all: bool = False


@dataclass(frozen=True, slots=True)
class OfAnswer:
    """A filter that removes from an answer what the client may not see.

    show: called with access, state, request and the answer's values. It returns the filter's steps.
    needs: the rights to a complete answer, for documentation and tests.
    unless: a right that makes all rights of `needs` unnecessary.
    """

    needs: tuple[tuple[AclOperation, ResourceType], ...]
    show: Callable[[Access, Any, Any, Any], Steps[Any]]
    unless: Right | None = None


@dataclass(frozen=True, slots=True)
class ByHandler:
    """Rights that the handler checks itself."""

    needs: tuple[tuple[AclOperation, ResourceType], ...]


Rule = Right | EachItem | OfAnswer | ByHandler
Rights = tuple[Rule, ...]
OPEN: Rights = ()  # requires no right, since the request shows and changes nothing of the cluster


@dataclass(slots=True)
class RightsVerdict:
    """The result of `judge`: the permitted request (None for nothing), refusals and filters."""

    request: Any
    refusals: list[tuple[Any, Refuse | None, KafkaError]] = field(
        default_factory=list[tuple[Any, Refuse | None, KafkaError]]
    )
    shown_by: tuple[OfAnswer, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether the request and its answer are unrestricted."""
        return not self.refusals and not self.shown_by


def judge(rights: Rights, access: Access, state: Any, request: Any) -> Steps[RightsVerdict]:
    """Apply the rules in their order, or raise the error if the whole request is refused."""
    verdict = RightsVerdict(request)
    counter = StepCounter()
    for rule in rights:
        if isinstance(rule, Right):
            if refusal := rule.refusal(access, verdict.request):
                raise refusal
        elif isinstance(rule, EachItem):
            if verdict.request is not None:
                yield from _sort(rule, access, state, verdict, counter)
        elif isinstance(rule, OfAnswer):
            verdict.shown_by += (rule,)
    return verdict


def _sort(
    rule: EachItem, access: Access, state: Any, verdict: RightsVerdict, counter: StepCounter
) -> Steps[None]:
    request = verdict.request
    if rule.unless is not None:
        resource = rule.unless.resource(request)
        if resource is not None and any(
            access.allows(each, *resource) for each in rule.unless.operations
        ):
            return
    allowed: list[Any] = []
    denied: dict[int, tuple[list[Any], KafkaError]] = {}  # by error
    for item in getattr(request, rule.array, None) or ():
        if counter.ends_step():
            yield
        try:
            resource = rule.resource(state, request, item)
        except KafkaError as error:
            denied.setdefault(-error.number, ([], error))[0].append(item)
            continue
        if resource is None or access.allows(rule.operation, *resource):
            allowed.append(item)
            continue
        if rule.refuses_all:
            raise access.refusal(rule.operation, *resource)
        if resource[0] not in denied:
            denied[resource[0]] = ([], access.refusal(rule.operation, *resource))
        denied[resource[0]][0].append(item)
    for items, error in denied.values():
        verdict.refusals.append((_with(request, rule.array, items), rule.refuse, error))
    if denied:
        verdict.request = _with(request, rule.array, allowed) if allowed else None


def _with(request: Any, array: str, items: list[Any]) -> Any:
    changed = copy.copy(request)
    setattr(changed, array, items)
    return changed


# -- the rules of most rows


def on_cluster(*operations: AclOperation) -> Right:
    """Return the right to any one of these operations on the cluster."""
    return Right(operations, (ResourceType.CLUSTER,), lambda request: CLUSTER)


def on_group(operation: AclOperation, name: str = "group_id") -> Right:
    """Return the right to an operation on the group that a field of the request names.

    Versions of the request without the field need no right.
    """
    return _on_field(operation, ResourceType.GROUP, name)


def on_transactional_id(operation: AclOperation, name: str = "transactional_id") -> Right:
    """Return the right to an operation on the transactional id in a field of the request."""
    return _on_field(operation, ResourceType.TRANSACTIONAL_ID, name)


def _on_field(operation: AclOperation, resource_type: ResourceType, name: str) -> Right:
    def resource(request: Any) -> Resource | None:
        value = getattr(request, name, None)
        return None if value is None else (resource_type, value)

    return Right((operation,), (resource_type,), resource)


def on_each_topic(
    operation: AclOperation,
    array: str = "topics",
    *,
    unless: Right | None = None,
    refuse: Refuse | None = None,
    refuses_all: bool = False,
) -> EachItem:
    """Return the right to an operation on each topic of an array, by its name or its id.

    An unknown topic id is refused here. Otherwise the handler or the controller, which may know the
    id a moment later, would accept it without a check.
    """

    def resource(state: Any, request: Any, item: Any) -> Resource | None:
        name = topic_name(state, item)
        if name is not None:
            return ResourceType.TOPIC, name
        if getattr(item, "topic_id", ZERO_ID) != ZERO_ID:
            raise UnknownTopicId
        return None

    topic = (ResourceType.TOPIC,)
    return EachItem(operation, topic, array, resource, unless, refuse, refuses_all)


def topic_name(state: Any, item: Any) -> str | None:
    """Return the name of the topic that an item of a request names, or None for an unknown id."""
    if isinstance(item, str):
        return item
    for field_name in ("name", "topic"):
        name = getattr(item, field_name, None)
        if name is not None:
            return name
    topic_id = getattr(item, "topic_id", None)
    topic = None if topic_id is None else state.topic_by_id(topic_id)
    return None if topic is None else topic.name


def on_each_name(operation: AclOperation, resource_type: ResourceType, array: str) -> EachItem:
    """Return the right to an operation on each resource of an array of names."""
    return EachItem(
        operation, (resource_type,), array, lambda state, request, item: (resource_type, item)
    )


def shows_each(
    operation: AclOperation,
    resource_type: ResourceType,
    array: str,
    name: str,
    *,
    unless: Right | None = None,
    asked: str = "",
) -> OfAnswer:
    """Return a filter that removes from an answer the resources that a client may not see.

    asked: the array of a request that names resources. These were checked before, so only the
    answer to a request that names none is filtered.
    """

    def show(access: Access, state: Any, request: Any, values: Any) -> Steps[Any]:
        if asked and getattr(request, asked):
            return values
        if unless is not None and any(access.allows(each, *CLUSTER) for each in unless.operations):
            return values
        counter = StepCounter()
        shown: list[Any] = []
        for each in values.get(array, ()):
            if access.allows(operation, resource_type, each[name]):
                shown.append(each)
            if counter.ends_step():
                yield
        return {**values, array: shown}

    return OfAnswer(((operation, resource_type),), show, unless)
