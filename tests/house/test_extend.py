"""Every recipe of docs/how-to/extend.md works as written, and touches the files it names and no others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from extendkit import PAGE, Recipe, carry_out, changed, copy_tree, git, recipes, run

RECIPES = recipes(PAGE.read_text()) if PAGE.exists() else []
WANTED = (
    "Add a probe protocol",
    "Add an exporter source",
    "Add a limit mechanism",
    "Add a study",
    "Add a metric",
    "Add a guard",
    "Add a cloud",
)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("pristine") / "tree"
    tree.mkdir()
    copy_tree(tree)
    return tree


@pytest.fixture
def tree(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the project, for one recipe."""
    copy = pristine.parent / "copy"
    shutil.copytree(pristine, copy, symlinks=True)
    yield copy
    shutil.rmtree(copy)


def test_there_is_a_recipe_for_each_seam() -> None:
    assert [r.title for r in RECIPES] == list(WANTED)
    assert all(r.commands for r in RECIPES)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.title.lower().replace(" ", "-"))
def test_a_recipe_works_as_written(recipe: Recipe, tree: Path) -> None:
    assert carry_out(recipe, tree) == recipe.named - recipe.generated
    for command in (*recipe.commands, *style(recipe)):
        run(command, tree)
    assert changed(tree) == recipe.named


def style(recipe: Recipe) -> Iterator[str]:
    """Yield the commands that check how a recipe's files are written."""
    if go := " ".join(sorted(f for f in recipe.named if f.endswith(".go"))):
        yield f'test -z "$(go tool -modfile=tools/go.mod gofumpt -l {go})"'
        packages = " ".join(sorted({f"./{Path(f).parent}" for f in go.split()}))
        yield f"go vet {packages}"
    if python := " ".join(sorted(f for f in recipe.named if f.endswith(".py"))):
        yield f"ruff check --quiet {python} && ruff format --quiet --check {python}"


PAGE_OF_THE_TEST = """
## Make a thing

| file | what |
|---|---|
| `a/new.txt` | the thing |
| `README.md` | says so |
| `b/made.txt` | made by `make generate` |

`a/new.txt`:

```text
one
```

```diff
--- a/README.md
+++ b/README.md
@@ -1 +1,2 @@
 # Vigia
+A thing.
```

```sh
grep -q one a/new.txt
mkdir b && cp a/new.txt b/made.txt
```
"""


def test_the_reader_of_recipes(tmp_path: Path) -> None:
    """A recipe that touches more than it says, or whose command fails, is found out."""
    (recipe,) = recipes(PAGE_OF_THE_TEST)
    (tmp_path / "README.md").write_text("# Vigia\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    assert carry_out(recipe, tmp_path) == {"a/new.txt", "README.md"} == recipe.named - recipe.generated
    assert (tmp_path / "README.md").read_text() == "# Vigia\nA thing.\n"
    for command in recipe.commands:
        run(command, tmp_path)
    assert changed(tmp_path) == recipe.named == {"a/new.txt", "README.md", "b/made.txt"}
    with pytest.raises(AssertionError, match="grep"):
        run("grep -q two a/new.txt", tmp_path)
    (undeclared,) = recipes(PAGE_OF_THE_TEST.replace("| `README.md` | says so |\n", ""))
    assert undeclared.named - undeclared.generated == {"a/new.txt"}
