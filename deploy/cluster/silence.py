"""Report of a cluster that does not answer a command, while the command still tries."""

from collections.abc import Callable

from ...client.admin import Admin
from ...client.cluster_view import SILENCE_S
from .terminal import say


def tell_silence(admin: Admin, say: Callable[[str], object] = say) -> None:
    """Print a line if no broker answers the first call of a client within 2 s.

    The line has the time for which the call is still tried.
    """
    left_s = admin.timeout_ms / 1000 - SILENCE_S
    admin.view.on_silence = lambda words: say(f"{words}; trying for {left_s:.0f} s")
