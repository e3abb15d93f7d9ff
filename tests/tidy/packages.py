"""Write the list of packages in pyproject.toml: python -m tests.tidy.packages.

Setuptools cannot find the packages itself, since the checkout is the package.
"""

import re

from .house import FILES, MAY_IMPORT, ROOT

PYPROJECT = ROOT / "pyproject.toml"
LIST = re.compile(r"^packages = \[\n.*?^\]\n", re.MULTILINE | re.DOTALL)


def with_packages(text: str) -> str:
    """Return pyproject.toml's text with the current list of packages.

    The order is that of MAY_IMPORT, so each folder comes after the folders that it may import.
    """
    floors = list(MAY_IMPORT)
    folders = {file.parent.relative_to(ROOT).parts for file in FILES}
    ordered = sorted(folders, key=lambda parts: (floors.index(parts[0]), parts))
    names = ["oncelog", *(".".join(("oncelog", *parts)) for parts in ordered)]
    listed = "".join(f'    "{name}",\n' for name in names)
    return LIST.sub(f"packages = [\n{listed}]\n", text)


if __name__ == "__main__":
    PYPROJECT.write_text(with_packages(PYPROJECT.read_text()))
