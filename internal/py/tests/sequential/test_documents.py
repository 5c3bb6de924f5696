"""What the documents say of sequential verdicts is what the code has."""

from __future__ import annotations

import contextlib
import io
import math
import re
from pathlib import Path

from vigia_statistics.sequential import QUESTIONS, Scale, engine

from .bench_verdicts import PAGE

README = Path(__file__).parents[2] / "vigia_statistics" / "README.md"


def test_examples_print_what_they_say() -> None:
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        expected = re.search(r"print\(.*\)  # (.*)\n", example)
        assert expected is not None
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(example, {})  # noqa: S102 - the document's own words
        assert said.getvalue().strip() == expected.group(1)


def test_margins_and_noise_are_those_of_the_questions() -> None:
    text = PAGE.read_text()
    for name, question in QUESTIONS.items():
        (row,) = re.findall(rf"^\| (?:[\w, ]*\b)?{name}\b[^|]*\|(.*)\|(.*)\|$", text, re.MULTILINE)
        margin, noise = (cell.strip() for cell in row)
        if question.scale is Scale.RATIO:
            assert margin == f"{question.margin:.0%}".replace("%", " %")
            assert (
                noise == "-" if question.noise is None else float(noise) == round(math.exp(question.noise), 2)
            )
        else:
            assert (margin, noise) == (f"{100.0 * question.margin:g} percentage points", "-")


def test_shares_and_caution_are_those_of_the_engine() -> None:
    text = " ".join(PAGE.read_text().split())
    minutes = 1.0 - engine.FINE_WEIGHT - len(engine.LOOKS) * engine.LOOK_WEIGHT
    for share in (engine.LOOK_WEIGHT, engine.FINE_WEIGHT, minutes):
        assert f"({share:.0%}".replace("%", " %") in text
    assert (
        f"raised by {engine.FINE_CAUTION} standard errors (fine) or {engine.STEADY_CAUTION} (minutes)" in text
    )
    assert [f"{look:g}" for look in engine.LOOKS] == ["30", "60", "120"] and "after 30, 60 and 120 s" in text


def test_the_readme_names_every_file() -> None:
    files = {p.name for p in (README.parent / "sequential").glob("*.py")} - {
        "__init__.py",
        "plain.py",
        "verdict.py",
    }
    text = README.read_text()
    assert {f for f in files if f"`{f}`" not in text} == set()
