"""JUnit XML of runs, a format that build servers and tools of all languages read.

The file does no I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from ...wire.printable import printable

Problem = Literal["", "failure", "error", "skipped"]
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class JunitCase:
    """One run as a test case, which has passed if `problem` is empty.

    message, text: the description of the problem.
    """

    suite: str
    name: str
    seconds: float
    problem: Problem = ""
    message: str = ""
    text: str = ""


def junit_xml(name: str, cases: Sequence[JunitCase]) -> str:
    """Return JUnit XML with one test suite of these cases.

    Characters that XML does not allow are escaped.
    """
    suite = ElementTree.Element(
        "testsuite", name=printable(name), tests=str(len(cases)),
        errors=_count(cases, "error"), failures=_count(cases, "failure"),
        skipped=_count(cases, "skipped"), time=f"{sum(case.seconds for case in cases):.1f}",
    )  # fmt: skip
    for case in cases:
        found = ElementTree.SubElement(
            suite,
            "testcase",
            classname=printable(case.suite),
            name=printable(case.name),
            time=f"{case.seconds:.1f}",
        )
        if case.problem:
            told = ElementTree.SubElement(found, case.problem, message=printable(case.message))
            told.text = printable(case.text, keep="\n")
    ElementTree.indent(suite)
    return f"{HEAD}{ElementTree.tostring(suite, 'unicode')}\n"


def _count(cases: Sequence[JunitCase], problem: str) -> str:
    return str(sum(case.problem == problem for case in cases))
