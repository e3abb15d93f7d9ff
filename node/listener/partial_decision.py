"""The handling of a request of which ACLs refuse some items or hide a part of the answer."""

from collections.abc import Callable
from inspect import iscoroutine, isgenerator
from typing import Any, cast

from ...runtime.steps import Steps, made
from ...wire.errors import KafkaError
from ...wire.framing import RequestHeader
from ..security.rights import RightsVerdict
from .request_context import RequestContext


class DecisionInPart:
    """The handling of a request's permitted part, and the errors of its refused items.

    decide, on_error: the functions of the API's row (see `dispatch.control_api`).
    """

    def __init__(
        self,
        verdict: RightsVerdict,
        decide: Callable[..., Any],
        on_error: Callable[[Any, KafkaError], Any],
        *,
        name: str,
    ) -> None:
        self._verdict, self._decide, self._on_error = verdict, decide, on_error
        self._name = name

    async def decide(self, context: RequestContext, header: RequestHeader, request: Any) -> Any:
        """Handle the permitted part, and return the answer's fields including all refused items."""
        work = context.broker.work
        values: Any = {}
        verdict = self._verdict
        if verdict.request is not None:
            try:
                values = self._decide(context, header, verdict.request)
                if iscoroutine(values):
                    values = await values
                if isgenerator(values):
                    values = await work.finish(self._name, cast("Steps[Any]", values))
            except KafkaError as error:
                values = self._on_error(verdict.request, error)
        for refused, refuse, error in verdict.refusals:
            refusal = (refuse or self._on_error)(refused, error)
            for name, value in refusal.items():
                if name not in values:
                    values = {**values, name: value}
                elif hasattr(value, "__len__") and not isinstance(value, str | bytes):
                    kept = await work.finish(self._name, made(_itself, values[name]))
                    kept += await work.finish(self._name, made(_itself, value))
                    values = {**values, name: kept}
        for rule in verdict.shown_by:
            showing = rule.show(context.access, context.broker.state, request, values)
            values = await work.finish(self._name, showing)
        return values


def _itself(item: Any) -> Any:
    return item
