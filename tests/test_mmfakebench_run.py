"""MMFakeBench from the data to the report: real runs of the demo model, and the agent's exact calls by a script."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from edgebench import pipeline
from edgebench.engines import ENGINES
from edgebench.metrics.summary import summarize
from edgebench.plan import RunPlan
from edgebench.records import Run
from tests import mediawiki, news, scripted
from tests.conftest import SHARED, Cli
from tests.endpoints import Asked, Endpoint, Handler, serving
from tests.test_explain import corner_model

CORPUS = [
    (["Name one"], "Finish: [Eiffel Tower]."),
    (["Conclude whether the caption is refuted", "Eiffel Tower was built"], "Finish[TEXT REFUTES]."),
    (["Conclude whether the caption is refuted"], "Finish[TEXT SUPPORTS]."),
    (["Conclude whether the picture", "bent"], "Finish[IMAGE REFUTES]."),
    (["Conclude whether the picture"], "Finish[IMAGE SUPPORTS]."),
    (["same event", "minister"], "Finish[MISMATCH]."),
    (["same event"], "Finish[MATCH]."),
    (["Describe what it shows"], "A place by day. Nothing is amiss."),
    (["say too little about it"], "The facts say it."),
]


def answers(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "answer"]


class Watch:
    def begin(self, total: int, done: int) -> None:
        pass

    def advance(self, failed: bool) -> None:
        pass

    def note(self, line: str) -> None:
        pass

    def say(self, step: str) -> None:
        pass


def test_the_exact_calls_of_the_agent(tmp_path: Path, demo_artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real runner, tokenizer and worker around written answers; a MediaWiki; then its frozen cache, without one."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps(CORPUS))
    monkeypatch.setenv(scripted.SCRIPT, str(script))
    monkeypatch.setitem(ENGINES, "scripted", ("tests.scripted:ScriptedEngine", ""))
    artifact = scripted.bytewise(demo_artifact, tmp_path / "artifact")
    data = news.write(tmp_path, samples=news.SAMPLES[:5])

    def run(name: str, **options: Any) -> dict[str, Any]:
        script.with_suffix(".log").unlink(missing_ok=True)
        plan = RunPlan(artifact, "scripted", "mmfakebench", data, tmp_path / name, profile="cpu-1-thread", **options)
        return summarize(Run(pipeline.run(plan, Watch())))

    with mediawiki.serve() as wiki:
        found = run("live", protocol="mmd-agent", knowledge=wiki.api)
        assert len(wiki.asked) == 1, "one entity, looked up once in the whole run"
    records = answers(tmp_path / "live")
    said = [r["answer"] for r in records]
    assert said == ["original", "textual", "original", "mismatch", "original"]
    six = ["entity", "analysis", "text_verdict", "description", "image_verdict", "consistency"]
    assert [[c["step"] for c in r["trace"]] for r in records] == [six, six[:3], six, six, six]
    scores = found["scores"]["mmfakebench"]
    assert scores["calls"]["samples_by_calls"] == {3: 1, 6: 4}
    assert scores["knowledge"]["lookups"] == {"found": 5}
    for name in ("prompt", "reused"):
        counted = [sum(c[f"{name}_tokens"] for c in r["trace"]) for r in records]
        assert scores["calls"][f"{name}_tokens_per_sample"] == sum(counted) / 5
    assert (scores["match_rate"], found["summary"]["accuracy"]) == (1.0, 0.8)
    assert scores["multiclass"]["confusion"]["visual"]["original"] == 1

    asked = scripted.calls(script)
    warm, asked = asked[:2], asked[2:]
    assert ["see" in call for call in warm] == [True, False]
    assert [n for n, call in enumerate(asked) if "see" in call] == [0, 7, 11, 18, 25], "each picture is looked at once"
    prompts = [call for call in asked if "prompt" in call]
    assert len(prompts) == sum(len(r["trace"]) for r in records) == 27
    for record, first in zip(records, (0, 6, 9, 15, 21), strict=True):
        own = prompts[first : first + len(record["trace"])]
        assert [c["answer"] for c in own] == [c["text"] for c in record["trace"]]
        assert [c["keep"] for c in own] == [c["reused_tokens"] for c in record["trace"]]
        assert own[0]["keep"] == 0, "nothing is taken from the sample before"
        assert all(c["keep"] > 37 for c in own[1:]), "the picture and the first words are read once"
        assert mediawiki.TOWER[:20] in own[1]["prompt"]
        total = record["stages_ns"]["total"]
        assert total == sum(c["stages_ns"]["total"] for c in record["trace"])
    assert 'Two dogs {caption} sleep on a "red" sofa.' in prompts[21]["prompt"]

    frozen = run("frozen", protocol="mmd-agent", knowledge=str(tmp_path / "live" / "knowledge.jsonl"))
    assert [r["answer"] for r in answers(tmp_path / "frozen")] == said
    assert [c for c in scripted.calls(script) if "prompt" in c][1:] == prompts, "the same calls, without a network"
    assert frozen["settings"]["knowledge"].startswith("frozen:")
    dead = run("dead", protocol="mmd-agent", knowledge="http://127.0.0.1:9/w/api.php")
    assert dead["scores"]["mmfakebench"]["knowledge"]["lookups"] == {"unreachable": 5}
    lookups = dead["scores"]["mmfakebench"]["knowledge"]["lookup_ms"]
    assert lookups["n"] == 3, "the source is not asked again after three"
    assert lookups["mean"] < 30_000
    assert not (tmp_path / "dead" / "knowledge.jsonl").read_text()


def test_the_agent_over_an_endpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same steps to a model elsewhere, each call with its picture; knowledge from a folder of articles."""
    from edgebench.cli.main import _main

    def manner(handler: Handler, asked: Asked) -> None:
        prompt = "".join(part.get("text", "") for part in asked.body["messages"][0]["content"])
        handler.stream(next(answer for words, answer in CORPUS if all(w in prompt for w in words)))

    data = news.write(tmp_path, samples=news.SAMPLES[:4])
    (tmp_path / "articles").mkdir()
    (tmp_path / "articles" / "Eiffel Tower.txt").write_text("It stands in Paris, and was finished in 1889.")
    endpoint = Endpoint(manner)
    with serving(endpoint) as url:
        common = ["run", "--engine", "api", "--base-url", url, "--model", "m", "--bench", "mmfakebench"]
        common += ["--data", str(data), "--protocol"]
        agent = ["mmd-agent", "--knowledge", str(tmp_path / "articles"), "-o", str(tmp_path / "agent")]
        assert _main([*common, *agent]) == 0, capsys.readouterr().err
        assert _main([*common, "mmd-agent", "-o", str(tmp_path / "agent"), "--resume"]) == 9
        asked = len(endpoint.asked)
        endpoint.manner = lambda handler, asked: handler.stream("Finish[ORIGINAL].")
        assert _main([*common, "standard", "-o", str(tmp_path / "standard")]) == 0
        assert len(endpoint.asked) == asked + 4
        refused = ["mixed", "--text-detector", str(tmp_path / "nothing"), "-o", str(tmp_path / "mixed")]
        assert _main([*common, *refused]) != 0
        endpoint.manner, asked_before = manner, len(endpoint.asked)
        corner = corner_model(tmp_path / "corner")
        mixed = ["mixed", "--image-detector", str(corner), "-o", str(tmp_path / "mixed")]
        assert _main([*common, *mixed, "--detector-engine", "api"]) == 2
        assert _main([*common, *mixed]) == 0, capsys.readouterr().err
    found = answers(tmp_path / "agent")
    assert [r["answer"] for r in found] == ["original", "textual", "original", "mismatch"]
    assert sum(len(r["trace"]) for r in found) == asked == 21
    assert {r["trace"][1]["knowledge"]["title"] for r in found} == {"Eiffel Tower"}
    assert all(request.picture.size == (40, 30) for request in endpoint.asked[:21])
    assert [r["answer"] for r in answers(tmp_path / "standard")] == ["original"] * 4
    # The endpoint says what is in the text and the match, a graph here what is in the picture.
    mixed_answers = answers(tmp_path / "mixed")
    scores = [r["trace"][3]["score"] if len(r["trace"]) > 3 else None for r in mixed_answers]
    assert len(endpoint.asked) - asked_before == sum(len(r["trace"]) for r in mixed_answers) - 3
    for record, score in zip(mixed_answers, scores, strict=True):
        steps = [call["step"] for call in record["trace"]]
        assert steps[:3] == ["entity", "analysis", "text_verdict"]
        if score is None:
            assert record["answer"] == "textual"
        elif score >= 0.5:
            assert (steps[3:], record["answer"]) == (["image_detector"], "visual")
        else:
            assert steps[3:] == ["image_detector", "description", "consistency"]
        assert "peak_memory_bytes" not in record, "that of a part of the models says nothing"
    assert len({score for score in scores if score is not None}) == 3
    sitting = json.loads((tmp_path / "mixed" / "records.jsonl").read_text().splitlines()[0])
    assert (sitting["kind"], sitting["engine"]["engine"]) == ("sitting", "api")
    header = json.loads((tmp_path / "mixed" / "run.json").read_text())
    assert header["settings"]["protocol"].startswith("mixed(image=corner@")
    assert header["settings"]["protocol"].endswith("; on ort)")


def test_the_demo_model_by_the_command_line(cli: Cli, demo_artifact: Path) -> None:
    """One prompt and the agent; the agent's run is killed and resumed; report, score and compare."""
    field = sorted((SHARED / "data" / "field" / "real_bsds").glob("*.jpg"))
    data = news.write(cli.folder, listed=True, photographs=field)
    common = ("run", demo_artifact, "--bench", "mmfakebench", "--data", data, "--max-new-tokens", 6)
    done = cli(*common, "-o", "standard", "--json")
    assert done.code == 0, done.err
    scores = done.json["scores"]["mmfakebench"]
    assert scores["calls"]["samples_by_calls"] == {"1": 10}
    assert (scores["match_rate"], scores["multiclass"]["recall"]) == (0.0, 0.0), "it says letters, which are no class"
    assert done.json["settings"]["protocol"] == "standard"

    agent = (*common, "--protocol", "mmd-agent", "-o", "agent")
    process = cli.start(*agent)
    records = cli.folder / "agent" / "records.jsonl"
    for _ in range(2000):
        if records.exists() and records.read_bytes().count(b"\n") >= 4:
            break
        time.sleep(0.01)
    process.kill()
    process.communicate()
    before = records.read_bytes().count(b"\n") - 1
    assert 3 <= before < 10
    with records.open("ab") as stream:
        stream.write(b'{"kind":"answer","id":"torn')
    done = cli(*agent, "--resume", "--json")
    assert done.code == 0, done.err
    found = answers(cli.folder / "agent")
    assert [len(r["trace"]) for r in found] == [6] * 10
    assert len({r["id"] for r in found}) == 10
    assert done.json["sittings"] == 2
    for record in found:
        assert record["trace"][0]["stages_ns"]["vision"] > 20 * max(
            c["stages_ns"]["vision"] for c in record["trace"][1:]
        )
        assert all(c["reused_tokens"] > 37 for c in record["trace"][1:])
    refused = cli(*common, "-o", "agent", "--resume")
    assert refused.code == 9
    assert "protocol 'mmd-agent' -> 'standard'" in refused.err

    shown = cli("report", "agent", "--markdown")
    assert shown.code == 0
    for words in ("macro F1", "consistency rate", "Each class, four classes", "What a sample took", "Sub\\-category"):
        assert words.replace("\\-", "-") in shown.out
    again = cli("score", "standard", "--matcher", "mmfakebench-2024", "--json")
    assert again.json["settings"]["matcher"] == "mmfakebench-2024"
    assert cli("score", "standard", "--matcher", "vlmevalkit-2026").code == 2
    assert cli("compare", "standard", "agent").code == 9
    compared = cli("compare", "standard", "agent", "--anyway")
    assert compared.code == 0, compared.err
    for words in ("macro F1, four classes", "calls a sample", "knowledge", "mmd-agent"):
        assert words in compared.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--protocol", "agent"), "did you mean 'mmd-agent'"),
        (("--knowledge", "none"), "nothing is looked up under 'standard'"),
        (("--protocol", "mixed"), "needs a detector"),
        (("--scoring", "logits"), "phrases, not option letters"),
        (("--matcher", "vlmevalkit-2026"), "reads option letters"),
        (("--prompts", "mine.yml"), "no set of instructions"),
        (("--protocol", "mmd-agent", "--knowledge", "nowhere"), "no source of knowledge"),
    ],
)
def test_what_does_not_go_together_is_said_before_the_run(
    tmp_path: Path, demo_artifact: Path, options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from edgebench.cli.main import _main

    data = news.write(tmp_path)
    code = _main(
        ["run", str(demo_artifact), "--bench", "mmfakebench", "--data", str(data), "-o", str(tmp_path / "o"), *options]
    )
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
