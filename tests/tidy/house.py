"""The product's files and their imports as a graph, and counts derived from the graph.

`import_arrows(with_types=True)` also counts imports under `if TYPE_CHECKING`.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The top folders, from the lowest to the highest, each with the folders that it may import.
_BROKER = {"runtime", "wire", "storage", "replication", "coordinator"}
MAY_IMPORT: dict[str, set[str]] = {
    "runtime": set(),
    "wire": {"runtime"},
    "storage": {"runtime", "wire"},
    "replication": {"runtime", "wire", "storage"},
    "coordinator": {"runtime", "wire", "replication"},
    "client": {"runtime", "wire"},
    "node": _BROKER,
    "pipeline": {"runtime", "wire", "client"},
    "deploy": {"runtime", "wire", "storage", "node", "client"},
    # The pipeline is a process of its own for all but proof/audit, which runs on Spark.
    "proof": {"runtime", "wire", "storage", "node", "client", "deploy", "pipeline"},
    "ui": {"runtime", "wire", "client", "deploy", "proof"},
    "cli": {"runtime", "wire", "storage", "node", "client", "deploy", "proof", "ui"},
}
FILES = sorted(f for folder in MAY_IMPORT for f in (ROOT / folder).rglob("*.py"))
ROOT_FILES = sorted(ROOT.glob("*.py"))
CRUMB_LINES = 60
Module = tuple[str, ...]


def module_of(file: Path) -> Module:
    path = file.relative_to(ROOT).with_suffix("")
    return path.parent.parts if file.name == "__init__.py" else path.parts


MODULES = {module_of(file): file for file in [*FILES, *ROOT_FILES]}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def line_count(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def _import_statements(tree: ast.AST, with_types: bool) -> Iterator[ast.ImportFrom]:
    """Yield the `from ... import` statements of a file, including those inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for other in [*(node.body if with_types else ()), *node.orelse]:
                yield from _import_statements(ast.Module([other], []), with_types)
        else:
            yield from _import_statements(node, with_types)


def _imported(module: Module, with_types: bool) -> set[Module]:
    file = MODULES[module]
    package = module if file.name == "__init__.py" else module[:-1]
    found = set[Module]()
    for node in _import_statements(parsed(file), with_types):
        if not node.level:
            continue
        base = package[: len(package) - node.level + 1]
        source = (*base, *(node.module.split(".") if node.module else ()))
        for alias in node.names:
            whole = (*source, alias.name)
            found.add(whole if whole in MODULES else source)
    return (found & MODULES.keys()) - {module}


@cache
def import_arrows(with_types: bool = False) -> dict[Module, set[Module]]:
    return {module: _imported(module, with_types) for module in MODULES}


def import_circles(with_types: bool = False) -> list[list[str]]:
    """Return the groups of modules that import one another in a cycle, the largest group first."""
    arrows = import_arrows(with_types)
    reach: dict[Module, set[Module]] = {}
    for start in arrows:
        seen, todo = set[Module](), [start]
        while todo:
            for target in arrows[todo.pop()] - seen:
                seen.add(target)
                todo.append(target)
        reach[start] = seen
    groups = {
        frozenset(other for other in reach[module] if module in reach[other])
        for module in arrows
        if module in reach[module]
    }
    return sorted((sorted(".".join(m) or "oncelog" for m in g) for g in groups), key=len)[::-1]


def upward_arrows() -> list[str]:
    """Return the imports that a product folder may not have, including those for types only."""
    return sorted(
        f"{'.'.join(module)} -> {'.'.join(target) or 'oncelog'}"
        for module, targets in import_arrows(with_types=True).items()
        for target in targets
        if module and module[0] in MAY_IMPORT
        and (not target or target[0] in MAY_IMPORT)
        and (target or ("",))[0] not in MAY_IMPORT[module[0]] | {module[0]}
    )  # fmt: skip


def crumbs() -> list[str]:
    """Return the small modules that could be merged into the only module that imports them.

    A small module has less than 60 lines and no test file of its own. The judge's checks are left
    out, since each has its own row in docs/judge.md.
    """
    importers = Counter(t for targets in import_arrows(True).values() for t in targets)
    tests = {file.name for file in (ROOT / "tests").rglob("test_*.py")}
    return sorted(
        str(file.relative_to(ROOT))
        for module, file in MODULES.items()
        if file.name != "__init__.py" and importers[module] == 1 and "checks" not in module
        and line_count(file) < CRUMB_LINES and f"test_{file.name}" not in tests
    )  # fmt: skip
