"""The settings of a run, from the command line and from `oncelog.prove`.

All settings are checked here, and an error message says what is wrong.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...deploy.cluster.failure import Failure
from .plan import Act, AimedFault, named
from .relation import matcher

INPUTS_MAX = 500_000
DEFAULT_IN, DEFAULT_OUT, DEFAULT_DRAIN_S = ("prove-in",), ("prove-out",), 60.0
RATE_MAX, SECONDS_MAX, INSTANCES_MAX, PARTITIONS_MAX = 5_000.0, 3_600.0, 16, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveSettings:
    """The settings of one run of `oncelog prove`.

    expect, final, feed: functions in the form module:function. faults: names of faults separated by
    commas, instead of a plan.
    """

    command: tuple[str, ...]
    inputs: tuple[str, ...] = DEFAULT_IN
    outputs: tuple[str, ...] = DEFAULT_OUT
    instances: int = 2
    seconds: float = 20.0
    rate: float = 100.0
    seed: int = 1
    partitions: int = 4
    bootstrap: str | None = None
    command_config: str | None = None  # a client.properties of the cluster of `bootstrap`
    secure: bool = False  # the cluster that is made, and the proxy, speak TLS and ask for logins
    match: str = "key"
    fanout: int = 1
    expect: str | None = None
    final: str | None = None
    feed: str | None = None
    sink: str | None = None
    faults: str | None = None
    as_is: bool = False
    alone: bool = False  # the system is a single process, and no fault starts a second one
    aborts: bool = True  # beside the inputs, some in transactions that are aborted
    start_timeout_s: float = 40.0
    drain_timeout_s: float = DEFAULT_DRAIN_S
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        for name, least, most in (
            ("rate", 0.1, RATE_MAX),
            ("seconds", 0.0, SECONDS_MAX),
            ("instances", 1, INSTANCES_MAX),
            ("partitions", 1, PARTITIONS_MAX),
            ("fanout", 0, 1_000),
            ("start_timeout_s", 1, 600),
            ("drain_timeout_s", 1, 3_600),
        ):
            if not least <= getattr(self, name) <= most:
                option = name.removesuffix("_s").replace("_", "-")
                raise Failure(f"--{option} lies in {least:g}..{most:g}.", exit_code=2)
        if not self.inputs or not (self.outputs or self.sink):
            raise Failure("Give a topic of inputs and a topic of outputs.", exit_code=2)
        if set(self.inputs) & set(self.outputs):
            raise Failure(
                "A topic cannot be input and output of the same application: what it "
                "writes would feed it.",
                exit_code=2,
            )
        if self.final is not None and (self.expect is not None or self.fanout != 1):
            raise Failure(
                "--final judges the last values, and cannot be combined with --expect and "
                "--fanout.",
                exit_code=2,
            )
        if self.expect is not None and self.fanout != 1:
            raise Failure(
                "--expect and --fanout cannot be combined. Give one of them.", exit_code=2
            )
        if self.command_config is not None and self.bootstrap is None:
            raise Failure("--command-config is used only with --bootstrap.", exit_code=2)
        if self.secure and self.bootstrap is not None:
            raise Failure(
                "--secure is used only for a cluster that is started for the run.", exit_code=2
            )
        matcher(self.match)
        if self.rate * self.seconds > INPUTS_MAX:
            raise Failure(
                f"--rate {self.rate:g} for --seconds {self.seconds:g} are more than "
                f"{INPUTS_MAX} inputs. Lower one of them.",
                exit_code=2,
            )
        if self.alone and self.instances != 1:
            raise Failure(
                "--alone is for a system that is a single process. Give --instances 1 with it.",
                exit_code=2,
            )
        if self.faults is not None:
            faults = named(self.faults)
            needs_brokers = any(fault.needs_brokers for fault in faults)
            if self.alone and any(fault.act is Act.ADD for fault in faults):
                raise Failure(
                    "The fault add starts a second instance, which --alone forbids.", exit_code=2
                )
            if self.bootstrap is not None and needs_brokers:
                raise Failure("prove does not kill the brokers of --bootstrap.", exit_code=2)
            if not self.secure:
                self._require_no_login(faults)

    def _require_no_login(self, faults: list[AimedFault]) -> None:
        for fault in faults:
            if fault.needs_user:
                raise Failure(
                    f"The fault {fault.name} changes users or ACLs, so it is made only with "
                    "--secure, in a cluster of the run.",
                    exit_code=2,
                )
            if fault.needs_tls and self.command_config is None:
                raise Failure(
                    f"The fault {fault.name} needs TLS. Give --secure, or --bootstrap with "
                    "--command-config.",
                    exit_code=2,
                )

    def as_json(self) -> str:
        return json.dumps(asdict(self), default=str, indent=1)


def again(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a run's JSON as keyword arguments, to repeat the run."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
