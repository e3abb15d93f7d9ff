"""The dispatcher of connections that require a login."""

from collections.abc import Callable

from ..closing import CloseConnection
from ..dispatch import Api, Dispatcher
from ..pending_answer import PendingAnswer
from ..request_context import RequestContext
from .login import Login

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
_OPEN = (SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE)


class GuardedDispatcher:
    """A dispatcher that serves ApiVersions and the login APIs, and others only during a session."""

    def __init__(self, dispatcher: Dispatcher, login: Login, now_ms: Callable[[], int]) -> None:
        self._dispatcher, self._login, self._now_ms = dispatcher, login, now_ms

    def find(self, frame: memoryview) -> Api | None:
        """Return the API of a request as `Dispatcher.find` does.

        Raises CloseConnection for an API that requires a login, if the client has no session.
        """
        api, login = self._dispatcher.find(frame), self._login
        if api is None or api.key in _OPEN:
            return api
        if not login.is_complete:
            raise CloseConnection(f"it sent API {api.key} before it had logged in")
        if login.is_over(self._now_ms()):
            raise CloseConnection("its login has expired, and it has not logged in again")
        return api

    def dispatch(
        self, context: RequestContext, api: Api | None, frame: memoryview
    ) -> "list[bytes | bytearray | memoryview] | PendingAnswer | None":
        """Handle a request that `find` has admitted, as `Dispatcher.dispatch` does."""
        return self._dispatcher.dispatch(context, api, frame)
