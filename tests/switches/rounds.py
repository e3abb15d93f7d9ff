"""The choice of the switches that run in one build. Successive builds run all switches.

Switches that only the random simulation finds take long, and run only with -m chaos.
"""

from .catalogue import SWITCHES

IN_SIMULATION, ON_PROCESSES = 5, 1  # a round
DIRECTED = tuple(name for name, switch in SWITCHES.items() if not switch.is_left_to_chance)
