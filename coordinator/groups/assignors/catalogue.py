"""The assignors by their names in Kafka. The first is the default."""

from .range import assign_range
from .spec import Assignor
from .uniform import assign_uniform

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"
