"""Test that docs/install.md describes the present ways of installation, and has valid links."""

import json
import re
import tomllib

import pytest

from .test_floors import FILES, ROOT, name

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
INSTALL = (ROOT / "docs/install.md").read_text(encoding="utf-8")
DOCKER = {"FROM", "COPY", "RUN", "USER", "WORKDIR", "EXPOSE", "STOPSIGNAL", "CMD"}
FROM_PYPI = re.compile(r"pip install (?:-\S+ )*['\"]?oncelog\b(?!/)|['\"`]oncelog\[\w")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", INSTALL, re.DOTALL | re.MULTILINE)
    assert found, language
    return found[1]


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub builds them."""
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_docs_and_code_contain_no_pip_install_of_oncelog_from_pypi() -> None:
    texts = [*PAGES, *FILES]
    found = [name(file) for file in texts if FROM_PYPI.search(file.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_docs_links_lead_to_existing_pages_and_headings(page) -> None:
    text = page.read_text(encoding="utf-8")
    wrong: list[str] = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        there = page.parent / target if target else page
        is_there = there.exists() and (
            not anchor or anchor in anchors(there.read_text(encoding="utf-8"))
        )
        if not is_there:
            wrong.append(link)
    assert wrong == []


def test_install_page_explains_each_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(re.findall(r"^\| `([\w-]+)` \|", INSTALL, re.MULTILINE)) == set(
        project["optional-dependencies"]
    )


def test_install_page_dockerfile_has_only_known_instructions() -> None:
    lines = block("dockerfile").splitlines()
    assert lines[0].startswith("FROM ")
    assert {line.split()[0] for line in lines} <= DOCKER
    for line in lines:
        if line.startswith("CMD "):
            assert json.loads(line.removeprefix("CMD "))[:2] == ["sh", "-c"]


def test_install_page_workflow_is_valid_yaml_with_jobs_and_steps() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (job,) = yaml.safe_load(block("yaml"))["jobs"].values()
    assert all({"uses", "run"} & step.keys() for step in job["steps"])
