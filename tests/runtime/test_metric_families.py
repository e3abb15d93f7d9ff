"""Test that metrics have the names that the example rules of the JMX exporter give for KRaft."""

import re
from pathlib import Path

import pytest

from oncelog.runtime.metric_families import COUNTER, FAMILIES, KAFKA, OWN

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
BEAN = re.compile(r"kafka\.([\w.]+):type=([\w-]+),(?: attribute |name=)([\w-]+)")


@pytest.mark.parametrize("name", KAFKA)
def test_metric_name_is_derived_from_its_mbean(name: str) -> None:
    match = BEAN.fullmatch(KAFKA[name].mbean)
    assert match is not None
    joined = "_".join(("kafka", *match.groups())).lower()
    derived = re.sub(r"[.-]", "_", joined).removesuffix("persec")
    assert name.removesuffix("_info") == derived


def test_metric_names_of_kafka_and_ours_are_distinct() -> None:
    assert not KAFKA.keys() & OWN.keys()
    assert all(name.startswith("oncelog_") for name in OWN)


def test_metric_docs_list_each_family_with_its_mbean() -> None:
    text = DOCS.read_text()
    part = text[text.index("## Of each broker") : text.index("## Of any cluster")]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \|", part, re.MULTILINE)
    suffix = {name: "_total" if f.kind == COUNTER else "" for name, f in FAMILIES.items()}
    listed = {name: (labels, bean) for name, labels, bean in rows}
    assert listed == {
        name + suffix[name]: (", ".join(family.labels), family.mbean or family.about)
        for name, family in FAMILIES.items()
    }
