"""Write the text of the byte search: the help topics that come with Python.

python -m benchmarks.searches.text topics.txt
"""

from __future__ import annotations

import pydoc_data.topics
import sys
from pathlib import Path


def main() -> None:
    (name,) = sys.argv[1:]
    text = "\n".join(pydoc_data.topics.topics.values())
    Path(name).write_text(text, encoding="utf-8")
    print(f"{name}: {len(text.encode())} bytes of Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
