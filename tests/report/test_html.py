"""The page: what it shows, that it holds nothing but text and pictures, and how it stands in a real browser."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Cli
from tests.runs import write_conditions, write_run

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


def test_the_page_holds_text_and_pictures_and_nothing_that_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text) < 250_000
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
def test_a_real_browser_shows_it_at_both_widths_in_the_dark_and_on_paper(page: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=QUIET)
        grounds = []
        for width, scheme in ((1280, "light"), (390, "light"), (390, "dark")):
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
            if width == 1280:
                paper = tab.pdf(format="A4")
                assert paper.startswith(b"%PDF")
                assert 2 <= paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ") <= 12
            tab.close()
        browser.close()
    assert grounds[0] == grounds[1] != grounds[2]
