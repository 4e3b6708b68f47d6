"""The site is built without a warning and without a network: every page is in it, and the reference has its names."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import runner

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.soak  # a build takes 12 s of the processor's time


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", folder / "trees"]
    done = subprocess.run(
        [*command, ROOT / "docs", folder / "html"], capture_output=True, text=True, check=False, timeout=170
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_in_it(site):
    pages = {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}


def test_the_reference_has_what_people_import_and_type(site):
    text = unescape(re.sub(r"<[^>]+>", "", (site / "reference.html").read_text()))
    for name in ("Client", "RunHandle", "RunResult", "Crew", "Task", "TaskContext", "Agent", "LLM", "Flow"):
        assert getattr(runner, name, None) or name == "RunResult"
        assert f".{name}(" in text, name
    for verb in ("submit", "worker", "resume", "fork", "doctor"):
        assert f"runner {verb} [OPTIONS]" in text, verb


def test_links_between_pages_lead_to_a_heading(site):
    wrong = []
    for page in site.rglob("*.html"):
        for to in re.findall(r'class="reference internal" href="([^"]+)"', page.read_text()):
            name, _, anchor = to.partition("#")
            there = (page.parent / name).resolve() if name else page
            if to.startswith("#../") or not there.is_relative_to(
                site.resolve()
            ):  # to a file of the repository: see test_links
                continue
            if not there.exists() or (anchor and f'id="{anchor}"' not in there.read_text()):
                wrong.append(f"{page.name}: {to}")
    assert wrong == []
