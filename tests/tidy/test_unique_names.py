"""A public class has a name that no other part of the product uses: grep finds one thing."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("wire", "storage", "replication", "coordinator", "client", "pipeline", "node", "deploy")


def test_public_classes_have_unique_names() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in (file for part in PARTS for file in sorted((ROOT / part).rglob("*.py"))):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
