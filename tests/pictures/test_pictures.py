"""make pictures, in short: one page of a vigia-compare that has no Prometheus; and, as a long test, of a lab."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from labkit import Machine, need_root
from PIL import Image
from portkit import free_port

from pictures.__main__ import DASHBOARDS, EXTRA, NAMES, named
from pictures.camera import HEIGHT, LARGEST, VIEWS, small
from pictures.kept import keep, moments, served
from pictures.scene import LAB, VICTIM
from vigia_prometheus import Prometheus
from vigia_testing import eventually

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs/images"


def make(arguments: str) -> subprocess.CompletedProcess[str]:
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "GRAFANA"))}
    argv = ["make", "--no-print-directory", "pictures", f"PICTURES={arguments}"]
    return subprocess.run(argv, cwd=ROOT, env=outside, capture_output=True, text=True, check=False)


@pytest.fixture
def compare(tmp_path: Path) -> Iterator[str]:
    """A vigia-compare with nothing behind it."""
    port = free_port()
    file = tmp_path / "compare.yaml"
    file.write_text(f"listen: 127.0.0.1:{port}\nprometheus: http://127.0.0.1:1\n")
    program = Path(sys.executable).with_name("vigia-compare")
    process = subprocess.Popen([program, "--config", file, "run"], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: answers(url), "vigia-compare answers")
        yield url
    finally:
        process.terminate()
        process.wait(180)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


def looked_at(file: Path) -> Image.Image:
    """Open a picture and check what every picture has to be."""
    assert file.stat().st_size <= LARGEST
    picture = Image.open(file)
    view = next((v for v in VIEWS.values() if v.ending and file.stem.endswith(v.ending)), VIEWS["light"])
    assert picture.size == (view.width, HEIGHT) and picture.format == "PNG"
    assert len(picture.convert("RGB").getcolors(1 << 20) or ()) > 4, "it shows something"
    return picture


def test_a_page_is_taken_light_and_dark(compare: str, tmp_path: Path) -> None:
    done = make(f"--url {compare} --only tenants --view light --view dark --view phone --output {tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    taken = {p.name: looked_at(p).convert("L") for p in tmp_path.glob("*.png")}
    assert set(taken) == {"tenants.png", "tenants-dark.png", "tenants-phone.png"}
    bright = {name: float(str(picture.resize((1, 1)).getpixel((0, 0)))) for name, picture in taken.items()}
    assert bright["tenants.png"] > 128 > bright["tenants-dark.png"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--only nothing", "invalid choice: 'nothing'"),
        ("--output /nonexistent", "--output: /nonexistent is no folder; make it"),
        ("--console http://127.0.0.1:1", "--console and --token-file go together"),
        ("--only dashboard-now", "set GRAFANA_HOME"),
        (
            "--only mesh --kept /nonexistent",
            "--kept: /nonexistent has no moments.json; name a folder that --keep",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_started(arguments: str, said: str) -> None:
    outside = {k: v for k, v in os.environ.items() if k != "GRAFANA_HOME"} | {
        "PYTHONPATH": str(ROOT / "tests")
    }
    argv = [sys.executable, "-m", "pictures", *arguments.split()]
    done = subprocess.run(argv, env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and said in done.stderr


SERIES = "# TYPE level gauge\nlevel 1 1769860800\nlevel 2 1769860815\n# EOF\n"


def test_what_was_kept_is_asked_for_as_it_was(tmp_path: Path) -> None:
    page, source = tmp_path / "page.txt", tmp_path / "data"
    page.write_text(SERIES)
    argv = ["promtool", "tsdb", "create-blocks-from", "openmetrics", page, source]
    subprocess.run(argv, check=True, capture_output=True)
    (source / "lock").touch()
    kept = tmp_path / "kept"
    for _ in range(2):  # what was kept before goes
        keep(source, kept, {"quiet": 1769860805.0, "flood": 1769860820.5, "other": 1.0})
    assert moments(kept) == {"quiet": 1769860805.0, "flood": 1769860820.5}
    with served(kept) as url, Prometheus(url, 60.0) as server:
        found = [[s.value for s in server.instant("level", at)] for at in moments(kept).values()]
    assert found == [[1.0], [2.0]]


def test_extra_views_are_of_pages_that_there_are() -> None:
    files = {named(n, flood=flood) for n in NAMES for flood in (False, True)}
    assert all(set(named_files) <= files for named_files in EXTRA.values())
    assert set(EXTRA) <= set(VIEWS) and set(DASHBOARDS) <= set(NAMES)


def test_a_picture_is_made_to_fit_or_refused() -> None:
    noise = Image.frombytes("RGB", (600, 600), os.urandom(600 * 600 * 3))
    out = io.BytesIO()
    noise.save(out, "PNG")
    assert out.tell() > LARGEST
    fits = small(out.getvalue())
    assert len(fits) <= LARGEST and Image.open(io.BytesIO(fits)).size == (600, 600)
    out = io.BytesIO()
    Image.frombytes("RGB", (1600, 1000), os.urandom(1600 * 1000 * 3)).save(out, "PNG")
    with pytest.raises(ValueError, match="does not fit"):
        small(out.getvalue())


def test_the_repository_has_a_picture_of_each_page() -> None:
    """With a flood and without; of some in the dark, or narrow, too. Pictures of what is no page any more are gone."""
    wanted = {f"{named(n, flood=flood)}.png" for n in NAMES for flood in (False, True)}
    extra = {f"{file}-{view}.png" for view, files in EXTRA.items() for file in files}
    assert {f"{e.removesuffix('.png').rpartition('-')[0]}.png" for e in extra} <= wanted
    assert {p.name for p in IMAGES.glob("*.png")} == wanted | extra
    for name in sorted(wanted | extra):
        looked_at(IMAGES / name)


@pytest.mark.long
@pytest.mark.pictures
@pytest.mark.netns
def test_a_lab_of_its_own_is_made_flooded_and_removed(tmp_path: Path) -> None:
    need_root()
    before = Machine.now(LAB)
    kept = tmp_path / "kept"
    done = make(f"--only incident --view light --output {tmp_path} --keep {kept}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^flooding$", done.stdout, re.MULTILINE)
    names = {"incident.png", "incident-quiet.png"}
    assert {p.name for p in tmp_path.glob("*.png")} == names
    for name in names:
        looked_at(tmp_path / name)
    assert (tmp_path / "incident.png").read_bytes() != (tmp_path / "incident-quiet.png").read_bytes()
    assert Machine.now(LAB) == before
    when = moments(kept)
    with served(kept) as url, Prometheus(url, 60.0) as server:
        floods = {name: server.instant("vigia_port_flood_score >= 70", at) for name, at in when.items()}
        sent = f'sum(rate(vigia_port_bytes_total{{tenant="{VICTIM}",direction="from_tenant"}}[1m]))'
        carried = {name: sum(s.value for s in server.instant(sent, at)) for name, at in when.items()}
    assert floods["flood"] and not floods["quiet"], "what was seen then can be seen again"
    assert min(carried.values()) > 1e6, "there is a victim to look at"
