"""Sources of knowledge: articles, a MediaWiki on this machine, one that fails in every way, and frozen caches."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from edgebench.agent.knowledge import CACHE, Articles, Frozen, Kept, open_source
from edgebench.agent.wikipedia import Wikipedia
from edgebench.errors import DataError, UsageError
from tests import mediawiki

FIVE = "The Eiffel Tower is a lattice tower in Paris. It was finished in 1889. Three. Four. Five."


class Waits(list[float]):
    """Seconds that would have been waited."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def test_a_mediawiki(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEBENCH_CONTACT", "someone@example.org")
    with mediawiki.serve() as wiki:
        waits = Waits()
        source = Wikipedia(wiki.api, wait=waits)
        found = source.look_up("eiffel tower")
        assert (found.status, found.title, found.text) == ("found", "Eiffel Tower", FIVE)
        assert found.elapsed_ns is not None
        assert source.look_up("two words").text == "Now there are more words here."
        planet = source.look_up("mercury")
        assert (planet.title, planet.text) == ("Mercury (planet)", "Mercury is the first planet.")
        assert source.look_up("nobody at all").status == "nothing"
        assert source.look_up("c# | <b>").status == "nothing"
        assert [a.get("titles") or "search" for a in wiki.asked] == [
            "eiffel tower", "two words", "mercury", "search", "nobody at all", "search", "search",
        ]  # fmt: skip
        assert all(a["maxlag"] == "5" and a["redirects" if "titles" in a else "gsrlimit"] for a in wiki.asked)
        assert all("someone@example.org" in agent and agent.startswith("edgebench/") for agent in wiki.agents)
        assert waits, "requests keep their distance"
        assert max(waits) <= 0.2
        source.close()


def test_failures_are_tried_again_and_bounded() -> None:
    with mediawiki.serve() as wiki:
        for failures, status, asked, waited in (
            (["503"], "found", 2, [0.5]),
            (["429", "html"], "found", 3, [7.0, 2.0]),
            (["cut", "maxlag"], "found", 3, [0.5, 7.0]),
            (["500"] * 9, "unreachable", 3, [0.5, 2.0]),
            (["302"] * 9, "unreachable", 3, [0.5, 2.0]),
            (["huge"] * 9, "unreachable", 3, [0.5, 2.0]),
            (["list"] * 9, "unreachable", 3, [0.5, 2.0]),
        ):
            waits = Waits()
            source = Wikipedia(wiki.api, wait=waits)
            wiki.asked.clear()
            wiki.failures = list(failures)
            found = source.look_up("eiffel tower")
            assert (found.status, len(wiki.asked)) == (status, asked), failures
            assert [w for w in waits if w > 0.2] == waited
            assert (found.reason is None) == (status == "found")
            source.close()
        source = Wikipedia(wiki.api, wait=Waits())
        wiki.failures = ["500"] * 99
        wiki.asked.clear()
        assert [source.look_up(str(n)).status for n in range(20)] == ["unreachable"] * 20
        assert len(wiki.asked) == 9, "three lookups of three tries; then the source is left alone"
        assert "not asked again" in (source.look_up("x").reason or "")
        source.close()


def test_a_lookup_ends_before_its_deadline() -> None:
    with mediawiki.serve() as wiki:
        now = [0.0]

        def wait(seconds: float) -> None:
            now[0] += seconds

        wiki.failures = ["429"] * 99
        source = Wikipedia(wiki.api, clock=lambda: now[0], wait=wait)
        assert source.look_up("x").status == "unreachable"
        assert now[0] < 30
        source.close()


def test_a_dead_network_is_a_result() -> None:
    source = Wikipedia("http://127.0.0.1:9/w/api.php", wait=Waits())
    found = source.look_up("eiffel tower")
    assert (found.status, found.text) == ("unreachable", "")
    assert "Connect" in (found.reason or "")
    source.close()


@pytest.mark.parametrize(
    "address", ["http://en.wikipedia.org/w/api.php", "https://me:secret@wiki.example/w/api.php", "ftp://x/y"]
)
def test_only_https_or_this_machine(address: str) -> None:
    with pytest.raises(UsageError, match="not an https address") as caught:
        open_source(address)
    assert "secret" not in str(caught.value)


def test_articles_of_a_folder_and_of_an_index(tmp_path: Path) -> None:
    folder = tmp_path / "articles"
    (folder / "more").mkdir(parents=True)
    (folder / "Eiffel_Tower.txt").write_text("The Eiffel Tower stands in Paris. It is tall.")
    (folder / "more" / "Paris.md").write_text("Paris is a city. The Eiffel Tower and the Louvre are in it.")
    (folder / "ignored.bin").write_bytes(b"\xff")
    index = tmp_path / "index.sqlite"
    with sqlite3.connect(index) as connection:
        connection.execute("CREATE VIRTUAL TABLE articles USING fts5(title, text)")
        for path in folder.rglob("*.[tm][xd]*"):
            connection.execute("INSERT INTO articles VALUES (?, ?)", (path.stem.replace("_", " "), path.read_text()))
    connection.close()
    for given in (folder, index):
        source = open_source(str(given))
        assert isinstance(source, Articles)
        assert source.look_up("eiffel tower").title == "Eiffel Tower"
        assert source.look_up("paris").title == "Paris", "the title comes before what is in the text"
        assert source.look_up("louvre").title == "Paris"
        for query in ("nobody", "", '" OR x NEAR (', "title : *", "-"):
            assert source.look_up(query).status == "nothing"
        source.close()
    assert open_source(str(folder)).name.startswith("folder:")
    for bad in (tmp_path / "empty", tmp_path / "no.sqlite"):
        bad.mkdir() if not bad.suffix else bad.write_bytes(b"no database")
        with pytest.raises(DataError):
            open_source(str(bad))
    with pytest.raises(UsageError, match="no source of knowledge"):
        open_source("wikipedi")


def test_what_was_found_is_kept_and_can_be_frozen(tmp_path: Path) -> None:
    path = tmp_path / CACHE
    with mediawiki.serve() as wiki:
        with Kept(Wikipedia(wiki.api, wait=Waits()), path) as kept:
            first = [kept.look_up(q) for q in ("eiffel tower", "nobody", "eiffel tower")]
            asked = len(wiki.asked)
            wiki.failures = ["500"] * 3
            assert kept.look_up("mercury").status == "unreachable"
        assert [f.status for f in first] == ["found", "nothing", "found"]
        assert asked == 3, "each is asked for once"
        with path.open("ab") as stream:
            stream.write(b'{"query": "torn')
        with Kept(Wikipedia(wiki.api, wait=Waits()), path) as again:
            assert again.look_up("eiffel tower").text == FIVE
            assert again.look_up("mercury").status == "found", "what could not be reached is asked again"
    assert [json.loads(line)["query"] for line in path.read_text().splitlines()] == [
        "eiffel tower",
        "nobody",
        "mercury",
    ]
    frozen = open_source(str(path))
    assert isinstance(frozen, Frozen)
    assert frozen.name.startswith("frozen:")
    assert frozen.look_up("eiffel tower").text == FIVE
    assert frozen.look_up("nobody").status == "nothing"
    assert frozen.look_up("somebody").status == "not cached"
    path.write_text('{"query": "x"}\n')
    with pytest.raises(DataError, match="'status' is missing"):
        open_source(str(path))
