"""make fuzz: every target for ten minutes; a finding is kept among the seeds."""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fuzz.run import Finding, fuzz, keep
from fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]


def go_targets() -> dict[str, tuple[str, str]]:
    """Return package and function of every fuzz test in Go, by PACKAGE.FUNCTION."""
    found = {}
    listed = subprocess.run(
        ["git", "grep", "-E", r"^func Fuzz\w+\(f \*testing\.F\)", "--", "*_test.go"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for line in listed.stdout.splitlines():
        file, _, text = line.partition(":")
        name = re.match(r"func (Fuzz\w+)", text)
        assert name is not None, line
        folder = str(Path(file).parent)
        found[f"{folder}.{name[1]}"] = (f"./{folder}", name[1])
    return found


def _fuzz_go(package: str, function: str, seconds: int) -> bool:
    """Let Go's own fuzzing run; what it finds is below testdata/fuzz of the package."""
    words = ["go", "test", package, "-run", "^$", "-fuzz", f"^{function}$", "-fuzztime", f"{seconds}s"]
    return subprocess.run([*words, "-parallel", "2"], cwd=ROOT, check=False).returncode == 0


def _fuzz_python(name: str, seconds: int) -> bool:
    drawn = random.SystemRandom().getrandbits(64)
    print(f"{name}: draws from {drawn}", flush=True)
    problems: dict[str, bytes] = {}
    for found in fuzz(name, random.Random(drawn), seconds=seconds):  # noqa: S311 - nothing secret
        if isinstance(found, Finding):
            kind = re.sub(r"\d+|'.*'|\".*\"", "_", found.problem)[:80]
            if len(problems.setdefault(kind, found.raw)) > len(found.raw) or problems[kind] is found.raw:
                problems[kind] = found.raw
                print(f"{name}: {found.problem}: {found.raw[:200]!r}", flush=True)
        else:
            print(f"{name}: {found} texts, {len(problems)} findings", flush=True)
    for kind, raw in problems.items():
        print(f"{name}: kept in {keep(name, Finding(raw, kind))}")
    return not problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz what is named, or everything; exit 1 after a finding."""
    go = go_targets()
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--list", action="store_true", help="name the targets")
    parser.add_argument("targets", nargs="*", help="names, or parts of them; all by default")
    options = parser.parse_args(arguments)
    every = [*TARGETS, *go]
    chosen = [n for n in every if not options.targets or any(t in n for t in options.targets)]
    unknown = [t for t in options.targets if not any(t in n for n in every)]
    if unknown:
        parser.error(f"no target has {', '.join(unknown)} in its name; --list names them")
    if options.list:
        print("\n".join(chosen))
        return 0
    failed = []
    for number, name in enumerate(chosen, 1):
        print(f"== {name} ({number} of {len(chosen)}, {options.seconds} s)", flush=True)
        fine = (
            _fuzz_python(name, options.seconds) if name in TARGETS else _fuzz_go(*go[name], options.seconds)
        )
        if not fine:
            failed.append(name)
    print(f"{len(chosen)} targets, findings in {len(failed)}: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
