"""Take the pictures of the README and the documentation: a real small search, the dashboard over it, a real browser.

    python docs/_shots [--out DIR] [--widths 390,1280,1920] [--only front,compare]

Two studies (``studies.yaml`` beside this file, after examples/quickstart.yaml) are searched in ``demo/shots.db``, unless that
was done before, which takes about as long as ``make demo`` twice. Then every page is taken in a light and in a dark theme, at the
given widths (pixels), with a palette of 256 colours; without ``--out`` into docs/_static, for the documentation.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from PIL import Image

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Page  # noqa: E402

from crossbreed.core.search.study import Study  # noqa: E402
from tests.dashboard.browser import Chromium, browsing, serving, settled  # noqa: E402

DATABASE = ROOT / "demo" / "shots.db"
QUICKSTART = ROOT / "examples" / "quickstart.yaml"
HEIGHT = 900
TALLEST = {"candidate": 2400}
"""Pixels of a page that are in its picture, 1100 unless more is worth seeing: the rest is left out at the bottom."""
MOST_BYTES = 200_000


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--out", type=Path, default=HERE.parent / "_static", help="where pictures are written"
    )
    options.add_argument("--widths", default="1280", help="widths of the browser's window in pixels")
    options.add_argument("--only", default="", help="pages to take; all of them if left out")
    options.add_argument("--whole", action="store_true", help="take whole pages, for looking at them")
    given = options.parse_args()
    names = search()
    pages = addresses(names)
    wanted = given.only.split(",") if given.only else list(pages)
    given.out.mkdir(parents=True, exist_ok=True)
    with serving(DATABASE.name, DATABASE.parent) as server, browsing() as browser:
        for width in map(int, given.widths.split(",")):
            for dark in (False, True):
                theme = "dark" if dark else "light"
                suffix = theme if given.widths == "1280" else f"{theme}-{width}"
                for name in wanted:
                    view, parameters = pages[name]
                    with taken(browser, server.url(view, **parameters), width, dark) as page:
                        file = given.out / f"dashboard-{name}-{suffix}.png"
                        if name == "front" and suffix == theme:
                            chart = page.locator(".st-key-front-chart").screenshot()
                            keep(chart, given.out / ("front.png" if theme == "light" else "front-dark.png"))
                        shoot(page, file, TALLEST.get(name, 1100) if not given.whole else None)


def search() -> list[str]:
    """The studies of ``studies.yaml``, searched where they are not yet; their names."""
    base = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))
    names = []
    DATABASE.parent.mkdir(exist_ok=True)
    for change in yaml.safe_load((HERE / "studies.yaml").read_text(encoding="utf-8")):
        file = DATABASE.with_name(f"{change['name']}.yaml")
        merged = {k: {**base[k], **v} if isinstance(v, dict) and k in base else v for k, v in change.items()}
        file.write_text(yaml.safe_dump({**base, **merged}, sort_keys=False), encoding="utf-8")
        command = [sys.executable, "-m", "crossbreed", "search", str(file), "--db", str(DATABASE)]
        subprocess.run(command, check=True, cwd=ROOT)
        names.append(str(change["name"]))
    return names


def addresses(names: list[str]) -> dict[str, tuple[str, dict[str, object]]]:
    """Picture -> page and what is chosen there, from what the first study found."""
    first, *others = names
    with Study.open(str(DATABASE), first) as study:
        found = study.read_candidates()
        analysed = study.repository.analysed(study.row.id)
    front = [c.row.number for c in found if c.on_front]
    best = max((c for c in found if c.confirmed), key=lambda c: c.means["score"]).row.number
    known = [
        *front,
        *(c.row.number for c in found if c.confirmed),
        *(c.row.number for c in found if c.eligible),
    ]
    together = ",".join(map(str, list(dict.fromkeys(known))[:3]))
    routed = analysed[0].number if analysed else best
    return {
        "studies": ("", {}),
        "front": ("front", {"study": first, "trial": best}),
        "overlay": ("front", {"study": first, "over": others[0], "with": together}),
        "candidates": ("candidates", {"study": first, "trial": best}),
        "candidate": ("candidate", {"study": first, "trial": best}),
        "routers": ("routers", {"study": first, "trial": routed}),
        "compare": ("compare", {"study": first, "with": together}),
        "budgets": ("budgets", {"study": first}),
        "health": ("health", {"study": first}),
    }


@contextmanager
def taken(browser: Chromium, address: str, width: int, dark: bool) -> Iterator[Page]:
    with browser.open(width=width, height=HEIGHT, dark=dark) as page:
        page.goto(address)
        settled(page)
        page.wait_for_timeout(1500)
        yield page


def shoot(page: Page, file: Path, tallest: int | None) -> None:
    """Write a page as a small PNG, its top ``tallest`` pixels or all of it."""
    height = page.get_by_test_id("stMain").evaluate("e => e.scrollHeight") + 4
    width = (page.viewport_size or {"width": 1280})["width"]
    page.set_viewport_size({"width": width, "height": min(max(height, 400), tallest or height)})
    page.wait_for_timeout(800)
    keep(page.screenshot(), file)


def keep(screenshot: bytes, file: Path) -> None:
    """Write a PNG of 256 colours. Raises SystemExit for one that is too large for a repository."""
    picture = Image.open(io.BytesIO(screenshot)).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    if file.parent.name == "_static" and file.stat().st_size > MOST_BYTES:
        sys.exit(f"{file} has {file.stat().st_size} bytes, more than {MOST_BYTES}.")


if __name__ == "__main__":
    main()
