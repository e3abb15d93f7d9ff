"""One cluster's features and the outcomes of its APIs, for printing and comparison.

`harmless` has the requests, `asking` sends them, `surveying` makes a survey, `compare` compares two
surveys and explains the differences from Apache Kafka, and `report` is the text for a person.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from ...wire.messages.apis import API_NAMES
from .outcomes import AskOutcome

Version = int
# Resource types of DescribeConfigs whose keys are shown, as Kafka's tools call them.
CONFIG_TYPES = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}


@dataclass(frozen=True, slots=True)
class SurveyedApi:
    """An API's advertised versions, and its outcomes by version.

    came: the outcomes, empty without requests.
    """

    oldest: int
    newest: int
    came: Mapping[Version, AskOutcome] = field(default_factory=dict[Version, AskOutcome])


class SurveyedFeature(NamedTuple):
    """The levels of one feature that the brokers support, and the level in effect.

    finalized: the level in effect in the cluster, or None.
    """

    lowest: int
    highest: int
    finalized: int | None

    def __str__(self) -> str:
        levels = f"{self.lowest}-{self.highest}"
        return levels if self.finalized is None else f"{levels}, level {self.finalized}"


@dataclass(frozen=True, slots=True)
class Survey:
    """The survey of one cluster.

    address: the address of the broker that answered. configs: keys by type, as in CONFIG_TYPES.
    stopped: why the survey ended early, so that the rest is unknown.
    """

    address: str
    cluster_id: str | None
    apis: Mapping[int, SurveyedApi]
    features: Mapping[str, SurveyedFeature]
    configs: Mapping[str, frozenset[str]]
    stopped: str = ""


def api_label(key: int) -> str:
    """Return an API's name, or its number if the name is unknown."""
    return API_NAMES.get(key, f"API {key}")


def version_range(oldest: int, newest: int) -> str:
    return str(oldest) if oldest == newest else f"{oldest}-{newest}"


def runs_of(versions: Iterable[int]) -> str:
    """Return version numbers as text with ranges, such as `0-3, 5`."""
    runs: list[list[int]] = []
    for version in sorted(versions):
        if runs and runs[-1][1] == version - 1:
            runs[-1][1] = version
        else:
            runs.append([version, version])
    return ", ".join(version_range(*run) for run in runs)


def came_in_words(came: Mapping[Version, AskOutcome]) -> str:
    """Return outcomes as text, such as `served`, or `0-2 served; 3 refused INVALID_REQUEST`."""
    if len(set(came.values())) <= 1:
        return str(next(iter(came.values()), ""))
    return "; ".join(
        f"{version_range(versions[0], versions[-1])} {outcome}"
        for outcome, versions in _runs_alike(came)
    )


def _runs_alike(came: Mapping[Version, AskOutcome]) -> Iterator[tuple[AskOutcome, list[int]]]:
    for outcome, run in groupby(sorted(came), key=came.__getitem__):
        yield outcome, list(run)


# -- as JSON (docs/conformance.md)


def survey_fields(survey: Survey) -> dict[str, Any]:
    """Return a survey as values for JSON."""
    return {
        "address": survey.address,
        "cluster_id": survey.cluster_id,
        "apis": [
            {
                "key": key,
                "name": api_label(key),
                "oldest": api.oldest,
                "newest": api.newest,
                "came": {str(v): {"came": o.came, "detail": o.detail} for v, o in api.came.items()},
            }
            for key, api in sorted(survey.apis.items())
        ],
        "features": [
            {"name": name, **found._asdict()} for name, found in sorted(survey.features.items())
        ],
        "configs": {kind: sorted(names) for kind, names in survey.configs.items()},
        "stopped": survey.stopped,
    }


def survey_of(fields: Mapping[str, Any]) -> Survey:
    """Return the survey from the JSON values of `survey_fields`."""
    apis = {
        row["key"]: SurveyedApi(
            row["oldest"],
            row["newest"],
            {int(v): AskOutcome(o["came"], o["detail"]) for v, o in row["came"].items()},
        )
        for row in fields["apis"]
    }
    features = {
        row["name"]: SurveyedFeature(row["lowest"], row["highest"], row["finalized"])
        for row in fields["features"]
    }
    configs = {kind: frozenset(names) for kind, names in fields["configs"].items()}
    found = fields["address"], fields["cluster_id"], apis, features, configs
    return Survey(*found, stopped=fields["stopped"])
