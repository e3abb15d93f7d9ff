"""The settings of a client process and its exit codes. Pure."""

import json
from dataclasses import asdict, dataclass, field

from .settings import LoadSettings

STUCK = 75  # exit code: a library's call did not return; start it again


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOrder:
    """The settings of a worker."""

    run: str  # the run's directory
    connection: str  # see deploy/cluster/secured/connection.py
    seed: str
    number: int = 0
    workloads: tuple[str, ...] = ("append", "job", "bank", "readers")
    transactional_clients: int = 2
    library: str = "oncelog"
    proxies: dict[int, int] = field(default_factory=dict[int, int])  # port of a broker: ours
    settings: LoadSettings = field(default_factory=LoadSettings)
    parent: int = 0  # pid of the parent, which may be gone before it can ask

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "WorkerOrder":
        values = json.loads(text)
        values["workloads"] = tuple(values["workloads"])
        values["proxies"] = {int(broker): ours for broker, ours in values["proxies"].items()}
        return cls(**values | {"settings": LoadSettings.from_json(values["settings"])})
