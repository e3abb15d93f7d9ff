"""The settings of a run, with its length, rate and kinds of faults.

The file does no I/O. The settings can be written as JSON.
"""

from dataclasses import dataclass, field
from typing import Any

from ...deploy.faults.schedule import KINDS
from .load.settings import LoadSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """All settings of a run. The same settings and seed give the same schedule of faults."""

    seconds: float = 90.0
    seed: int = 1
    nodes: int = 3
    faults_per_minute: float = 24.0  # the intended rate; faults may take longer
    workers: int = 2  # processes with our client; the last one's connections use proxies
    confluent_workers: int = 1
    transactional_clients: int = 4  # of `append`, in each process with our client
    kinds: tuple[str, ...] = KINDS
    keeps_data: bool = False
    is_secured: bool = False  # as `up --secure`; a proxy cannot tell encrypted requests apart
    load: LoadSettings = field(default_factory=LoadSettings)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "RunSettings":
        kinds = tuple(values["kinds"])
        return cls(**{**values, "kinds": kinds, "load": LoadSettings.from_json(values["load"])})
