"""What a process of clients is told, and what its exit code says. Pure."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

STUCK = 75  # exit code: a library's call did not return; start it again


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOrder:
    """What a worker is told."""

    run: str  # the run's directory
    bootstrap: str
    number: int
    seed: str
    workloads: tuple[str, ...]
    transactional_clients: int = 2
    library: str = "oncelog"
    proxies: dict[str, int] = field(default_factory=dict[str, int])  # port of a broker: ours
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    parent: int = 0  # who starts it, and may be gone before it can ask

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "WorkerOrder":
        values = json.loads(text)
        return cls(**{**values, "workloads": tuple(values["workloads"])})
