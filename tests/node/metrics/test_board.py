"""Test that the Grafana board uses only metrics that brokers export."""

import json
import re
from pathlib import Path

from oncelog.runtime.metric_families import COUNTER, FAMILIES

BOARD = json.loads((Path(__file__).parents[3] / "docs" / "grafana.json").read_text())
EXPORTED = {name + ("_total" if f.kind == COUNTER else ""): f for name, f in FAMILIES.items()}
EXPRESSIONS = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
OTHER_LABELS = {"instance", "job"}  # which a scrape adds


def test_dashboard_metric_of_each_panel_is_exported() -> None:
    asked = {name for each in EXPRESSIONS for name in re.findall(r"\b(?:kafka|oncelog)_\w+", each)}
    assert len(asked) > 20
    assert asked <= EXPORTED.keys()


def test_dashboard_label_of_each_panel_belongs_to_its_metric() -> None:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            names = re.findall(r"\b(?:kafka|oncelog)_\w+", target["expr"])
            has = {label for name in names for label in EXPORTED[name].labels} | OTHER_LABELS
            grouped = re.findall(r"(?:by|on) \(([^)]*)\)", target["expr"])
            asked = {label.strip() for group in grouped for label in group.split(",")}
            asked |= set(re.findall(r"(\w+)=~?\"", target["expr"]))
            asked |= set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert asked <= has, (panel["title"], asked - has)


def test_dashboard_counters_are_queried_as_rates() -> None:
    for each in EXPRESSIONS:
        for name in re.findall(r"\b(?:kafka|oncelog)_\w+", each):
            if EXPORTED[name].kind == COUNTER:
                assert re.search(rf"(?:rate|increase)\({name}(?:{{[^}}]*}})?\[", each), each


def test_dashboard_panels_do_not_overlap_and_have_unique_ids() -> None:
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    cells = [
        (x, y)
        for at in places
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
