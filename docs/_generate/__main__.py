"""Write the pages that are generated from the code, or with ``--check`` fail where a committed one differs.

    python docs/_generate [--check]

Each module beside this one is a page: ``PAGE`` is its path inside ``docs``, ``text()`` what it says.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent


def pages() -> dict[Path, str]:
    """Every generated page by its path, as it should be."""
    sys.path.insert(0, str(HERE))
    modules = [
        importlib.import_module(file.stem)
        for file in sorted(HERE.glob("*.py"))
        if not file.stem.startswith("_")
    ]
    return {HERE.parent / module.PAGE: module.text() for module in modules}


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--check", action="store_true", help="Write nothing; exit 1 where a page differs.")
    check = options.parse_args().check
    stale = False
    for path, wanted in pages().items():
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        if found == wanted:
            continue
        stale = True
        if check:
            sys.stdout.writelines(
                difflib.unified_diff(
                    found.splitlines(keepends=True),
                    wanted.splitlines(keepends=True),
                    str(path),
                    "as generated",
                )
            )
        else:
            path.write_text(wanted, encoding="utf-8")
            print(path)
    if check and stale:
        sys.exit("a generated page differs from what the code says; run `make generated` and commit it")


if __name__ == "__main__":
    main()
