import re
from pathlib import Path

from oncelog.proof.prove.diagnosis.catalogue import CATALOGUE, PAGE

ROOT = Path(__file__).resolve().parents[4]


def test_diagnosis_finding_of_each_name_has_a_docs_section_with_its_remedy() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^##|\Z)", page, re.M | re.S))
    assert CATALOGUE.keys() <= sections.keys()
    for name, kind in CATALOGUE.items():
        assert kind.remedy in " ".join(sections[name].split()), name
        assert ("*Exposed.*" in sections[name]) == (kind.weight == "exposed"), name
