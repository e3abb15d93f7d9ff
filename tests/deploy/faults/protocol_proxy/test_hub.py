"""Test waiting for the rules of a proxy."""

import threading

from oncelog.deploy.faults.protocol_proxy import hub as hub_module
from oncelog.deploy.faults.protocol_proxy.hub import Hub
from oncelog.deploy.faults.protocol_proxy.rules import LoseAnswer, Match, Rule

from ....interruptions import interrupted

TRACED = hub_module.__file__, threading.__file__


def test_wait_for_a_rule_that_is_interrupted_anywhere_leaves_no_lock_held() -> None:
    """A Ctrl-C would otherwise block the event loop of the proxy, and with it all clients."""
    hub, rule = Hub([("127.0.0.1", 1)], [], 0), Rule(Match(), LoseAnswer())
    hub.add(rule)
    number, is_whole, made = 0, False, list[int]()
    while not is_whole:
        number += 1
        wait = lambda: hub.wait(lambda: hub.made(rule) > 0, 0.001)  # noqa: E731
        is_whole = not interrupted(wait, number, TRACED)
        thread = threading.Thread(target=lambda: made.append(hub.made(rule)), daemon=True)
        thread.start()
        thread.join(10)
        assert len(made) == number, "the lock is held"
    assert number > 3
