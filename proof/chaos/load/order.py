"""The settings of a client process and its exit codes. The file does no I/O."""

import json
from dataclasses import asdict, dataclass, field

from .settings import LoadSettings

STUCK = 75  # exit code: a library's call did not return, so the process must be restarted


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOrder:
    """The settings that a client process gets from its parent."""

    run: str  # the run's directory
    connection: str  # see deploy/cluster/secured/connection.py
    seed: str
    number: int = 0
    workloads: tuple[str, ...] = ("append", "job", "bank", "readers")
    transactional_clients: int = 2
    library: str = "oncelog"
    # port of a broker -> port of our proxy
    proxies: dict[int, int] = field(default_factory=dict[int, int])
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
