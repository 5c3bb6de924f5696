"""Writes dashboards/json; with --check, says which files are out of date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vigia_dashboards.grafana import to_json
from vigia_dashboards.pages import PAGES

FOLDER = Path(__file__).resolve().parents[1] / "json"


def main(arguments: list[str] | None = None) -> int:
    """Write or check every dashboard; what no definition makes is removed."""
    parser = argparse.ArgumentParser(prog="vigia_dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    check: bool = parser.parse_args(arguments).check
    wanted = {f"{page.uid}.json": to_json(page, PAGES) for page in PAGES}
    there = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    stale = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
    for name in stale:
        if not check and name in wanted:
            (FOLDER / name).write_text(wanted[name])
        elif not check:
            (FOLDER / name).unlink()
        said = "out of date; run make dashboards" if check else "written" if name in wanted else "removed"
        sys.stdout.write(f"dashboards/json/{name}: {said}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
