"""The switches tried in a build, some each time and all in turn.

Switches that only random simulation finds take long, and are tried only with all (-m chaos).
"""

from .catalogue import SWITCHES

IN_SIMULATION, ON_PROCESSES = 5, 1  # a round
DIRECTED = tuple(name for name, switch in SWITCHES.items() if not switch.is_left_to_chance)
