"""Print counts of files, lines and imports: .venv/bin/python -m tests.tidy.count [-v]."""

import argparse
from collections import Counter

from .house import (
    FILES,
    ROOT,
    ROOT_FILES,
    crumbs,
    import_circles,
    line_count,
    upward_arrows,
)  # fmt: skip
from .words import RATIO_MAX, folders, row_of

FILE_LINES_MAX = 500


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.tidy.count", description=__doc__)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="list the files and imports behind a count"
    )
    verbose = parser.parse_args().verbose
    lines = {file: line_count(file) for file in [*FILES, *ROOT_FILES]}
    product = sum(lines.values())
    lines_by_folder = Counter[str]()
    for file, count in lines.items():
        lines_by_folder[file.relative_to(ROOT).parts[0]] += count
    test_lines = sum(line_count(file) for file in (ROOT / "tests").rglob("*.py"))
    large = [f"{f.relative_to(ROOT)}: {n}" for f, n in lines.items() if n > FILE_LINES_MAX]
    skips = {f: f.read_text(encoding="utf-8").count("# fmt: skip") for f in lines}
    ((largest, size),) = lines_by_folder.most_common(1)
    print(f"product lines            {product}")
    print(f"test lines               {test_lines}")
    print(f"largest top folder       {largest} {100 * size / product:.1f} %")
    for title, found in {
        "import circles": [" ".join(circle) for circle in import_circles()],
        "import circles, types": [" ".join(circle) for circle in import_circles(True)],
        "arrows up": upward_arrows(),
        f"files above {FILE_LINES_MAX} lines": large,
        "crumbs": crumbs(),
    }.items():
        print(f"{title:24} {len(found)}")
        for one in found if verbose else ():
            print(f"  {one}")
    plain = sum(max(folder.ratios.values()) <= RATIO_MAX for folder in folders().values())
    print(f"folders in plain words   {plain} of {len(folders())}")
    for name, folder in folders().items():
        print(f"  {row_of(name, folder)}")
    print(f"fmt: skip                {sum(skips.values())}")
    for file, count in skips.items() if verbose else ():
        print(f"  {file.relative_to(ROOT)}: {count}" if count else "", end="\n" * (count > 0))


if __name__ == "__main__":
    main()
