"""Test that no two public classes of the product have the same name."""

import ast
from collections import defaultdict

import pytest

from .test_floors import FILES, ROOT, parsed

pytestmark = pytest.mark.xdist_group("tidy")  # one worker, so that files are parsed once


def test_public_product_classes_have_unique_names() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in FILES:
        if file.parent.name == "added":  # the names are Kafka's, in each version the same
            continue
        for node in parsed(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
    parsed.cache_clear()  # no later test reads it: it is large, and slows garbage collection
