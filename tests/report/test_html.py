"""The page: what it shows, that it holds nothing but text and pictures, and how it stands in a real browser."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Cli
from tests.runs import write_conditions, write_detector, write_run

if TYPE_CHECKING:
    from pathlib import Path

EVIL = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> \u202egnp.exe\u202c שלום $x^2$ {{ 7*7 }} " + "W" * 10000
)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


class Seen(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: dict[str, list[str]] = {}
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, a hostile one among them, and two that are perturbed."""
    pytest.importorskip("matplotlib")
    cli = Cli(tmp_path_factory.mktemp("page"))
    write_run(cli.folder / "fp32")
    write_run(cli.folder / "int8", precision="int8", seed=1, slower=0.5, wrong=30, peak=90 << 20)
    write_run(cli.folder / "evil", precision=EVIL, name=EVIL, task=EVIL, seed=2, peak=200 << 20)
    for level in (1, 3):
        write_run(cli.folder / f"noise{level}", perturbation=f"noise:{level}", wrong=10 * level, questions=200)
    write_conditions(cli.folder / "fp32", hot=False)
    write_conditions(cli.folder / "int8", hot=True)
    done = cli("report", "fp32", "int8", "evil", "noise1", "noise3", "--html", "page.html")
    assert done.code == 0, done.err
    assert done.err == ""
    assert done.out == "page.html\n"
    return cli.folder / "page.html"


@pytest.fixture(scope="module")
def detectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine detectors, more than there are marks: a hostile one, one without memory, one that some pictures fail."""
    pytest.importorskip("matplotlib")
    cli = Cli(tmp_path_factory.mktemp("detectors"))
    write_detector(cli.folder / "0", "always-real", ms=5, wrong=1)
    write_detector(cli.folder / "1", EVIL, ms=12, wrong=0.5, size=None)
    write_detector(cli.folder / "2", "partly", ms=30, wrong=0.25, size=400 << 20, fails=10)
    for k in range(3, 9):
        write_detector(cli.folder / str(k), f"network-{k}", ms=9 + k / 10, wrong=k / 10, size=(90 + k) << 20)
    done = cli("report", *map(str, range(9)), "--html", "page.html", "--anyway")
    assert done.code == 1, "some questions failed"
    return cli.folder / "page.html"


def held(page: Path) -> Seen:
    """What the page holds; nothing that runs or asks for anything is in it."""
    text = page.read_text(encoding="utf-8")
    assert len(text) < 400_000
    seen = Seen()
    seen.feed(text)
    assert {"svg", "table", "figure"} <= seen.tags
    assert not seen.tags & {
        "script",
        "img",
        "link",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "image",
        "foreignobject",
    }
    assert not [name for name in seen.attributes if name.startswith("on") or name in {"src", "action", "formaction"}]
    assert all(value.startswith("#") for value in seen.attributes.get("href", []))
    assert not re.search(r"url\((?!#)|@import|https?://", text)
    ids = seen.attributes["id"]
    assert len(ids) == len(set(ids))
    assert "<script>alert(1)</script>" in seen.text
    assert "{{ 7*7 }}" in seen.text
    assert "\u202e" not in text
    assert "W" * 500 not in text
    return seen


def test_a_page_of_detectors_tells_a_buyer_which_to_take(detectors: Path) -> None:
    seen = held(detectors)
    assert "50.0\xa0%" in seen.text, "who always says real is at chance, though right in 60 %"
    for word in ("Balanced accuracy against latency", "chance", "AUROC", "90 of 100", "partly, 90 of 100",
                 "compared as wholes", "physical limit", "90 of 100", "1.00\xa0ms (6.0\xa0x)",
                 "ES: entire synthesis", "the larger a mark"):  # fmt: skip
        assert word in seen.text, word
    assert "against the base" not in seen.text, "detectors have no base"
    picture = seen.text[seen.text.index("Balanced accuracy against latency") :]
    numbers = [word for word in picture[: picture.index("Balanced accuracy against memory")].split() if word.isdigit()]
    assert set(map(str, range(1, 10))) <= set(numbers), "each mark has its number"

    cli = Cli(detectors.parent)
    runs = list(map(str, range(9)))
    refused = cli("compare", *runs)
    assert refused.code == 9
    assert "preprocessing" in refused.err
    shown = cli("compare", *runs, "--anyway", "--markdown").out
    assert shown.count("Side by side") == 2, "nine runs do not fit beside each other"
    table = shown[shown.index("Pareto front: balanced accuracy") :]
    assert re.search(
        r"\| 1 \| always-real[^|]*\| 50\.0 %[^|]*\|[^|]*\| 100 of 100 \| 6\.00 / 6\.00 \| 1\.00 \(6\.0 x\)", table
    )
    assert re.search(r"\| 2 \|.*\| – \| 1\.0 MiB \| – \|", table), "unknown memory is no 0, and on no front"
    points = cli("compare", "0", "1", "--anyway", "--json").json["pareto"]["points"]
    assert points[1]["memory_bytes"] is None
    assert points[0]["accuracy"] == 0.5
    assert points[0]["measured_over_least"] == pytest.approx(6)


def test_the_page_holds_text_and_pictures_and_nothing_that_runs(page: Path) -> None:
    seen = held(page)
    for word in ("Accuracy against latency", "Accuracy against memory", "Stages", "Total time of a question",
                 "By forgery type", "Robustness: noise", "-7.5\xa0points", "worse", "dominated"):  # fmt: skip
        assert word in seen.text, word
    assert "its times are INVALID: the CPU's clock fell to 1500 MHz" in seen.text, (
        "the hot machine's times are not to be believed"
    )
    assert "50 / 65 / 80" in seen.text
    assert "1500 / 3000 / 3000" in seen.text
    robust = seen.text[seen.text.index("Robustness: noise") :]
    assert "75.0\xa0%" in robust, "the clean run is level 0, over the 200 questions that every level answered"
    assert "70.0\xa0%" in robust
    assert "60.0\xa0%" in robust

    cli = Cli(page.parent)
    write_run(cli.folder / "logits", scoring="logits")
    refused = cli("report", "fp32", "logits", "--html", "no.html")
    assert refused.code == 9
    assert not (cli.folder / "no.html").exists()
    assert cli("report", "fp32", "logits", "--html", "anyway.html", "--anyway").code == 0
    assert "not the same scoring: generate / logits" in (cli.folder / "anyway.html").read_text()
    assert cli("report", "fp32", "--html", "nowhere/page.html").code == 9


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_real_browser_shows_it_at_both_widths_in_the_dark_and_on_paper(page: Path, detectors: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=QUIET)
        grounds = []
        views = [(page, 1280, "light"), (page, 390, "light"), (page, 390, "dark"), (detectors, 390, "light")]
        for page, width, scheme in views:
            tab = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
            said: list[str] = []
            asked: list[str] = []
            tab.on("console", lambda message, said=said: said.append(message.text))
            tab.on("pageerror", lambda error, said=said: said.append(str(error)))
            tab.on("dialog", lambda dialog, said=said: said.append(dialog.message))
            tab.on("request", lambda request, asked=asked: asked.append(request.url))
            tab.goto(page.as_uri())
            assert said == []
            assert asked == [page.as_uri()]
            assert tab.evaluate("document.documentElement.scrollWidth") == width, "nothing is wider than the screen"
            for figure in tab.query_selector_all("svg"):
                box = figure.bounding_box()
                assert box is not None
                assert 300 < box["width"] <= width
                sizes = figure.evaluate(
                    "s => [...s.querySelectorAll('text')].map(t => t.getBoundingClientRect().height)"
                )
                assert min(sizes) > 9, "text in a picture is legible on a phone"
            grounds.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            marks = [m.bounding_box() for m in tab.query_selector_all("[id*='point-']")]
            assert marks
            assert all(m is not None and m["width"] >= 4 for m in marks), "the smallest mark is seen"
            if width == 1280:
                paper = tab.pdf(format="A4")
                assert paper.startswith(b"%PDF")
                assert 2 <= paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ") <= 12
            tab.close()
        browser.close()
    assert grounds[0] == grounds[1] == grounds[3] != grounds[2]
