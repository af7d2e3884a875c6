"""What every engine keeps: one test over all that can run here; and in fp32 all of them answer alike."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.engines import ENGINES
from edgebench.errors import EngineError
from edgebench.manifest import Artifact, read_artifact
from edgebench.profiles import load_profile
from edgebench.recipes import load_recipe
from edgebench.registry import load
from tests import twins
from tests.conftest import Cli, rarely

pytest.importorskip("torch")
pytest.importorskip("transformers")
from edgebench.export.run import export

ROWS = {
    "null": ("numpy", "ort"),
    "ort": ("onnxruntime", "ort"),
    "openvino": ("openvino", "portable"),
    "torch": ("torch", "ort"),
    "genai": ("onnxruntime_genai", "ort"),
}
"""Engine -> the package that it needs, and the dialect that it takes. One more engine is one more row."""
ONLY = {"genai": {"language"}}
"""Engines that take not every kind of model."""
FORMS: dict[str, dict[str, str]] = {"openvino passed": {"cache": "passed"}}
"""An engine in another form of its own, by its options."""
SEEING = [name for name in ROWS if name not in ONLY]
RECIPES = {"demo": "edgebench-demo", "next": "llava-next", "language": "smollm2-135m", "encoder": "clip-probe"}
LOGITS = 2e-3
"""fp32 engines differ from the checkpoint by no more, on logits of about 10."""
NATS = 5e-4
"""Nor do the log-probabilities of the options' letters."""


class Made:
    """Checkpoints and their fp32 artifacts, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._references: dict[str, list[Any]] = {}

    def weights(self, kind: str) -> Path:
        target = self.folder / kind
        if not target.exists():
            {
                "next": twins.write_llava_next,
                "language": twins.write_language,
                "encoder": lambda folder: twins.write_encoder(folder, "clip"),
            }[kind](target)
            twins.write_probe(self.folder / "probe.pth", 24)
        return target

    def __call__(self, kind: str, dialect: str) -> Artifact:
        target = self.folder / f"{kind}-{dialect}"
        if not target.exists():
            export(
                load_recipe(RECIPES[kind]),
                weights=None if kind == "demo" else str(self.weights(kind)),
                precision="fp32",
                dialect=dialect,  # type: ignore[arg-type]
                output=target,
                say=lambda step: None,
                probe=self.folder / "probe.pth" if kind == "encoder" else None,
                parity=False,
            )
        return read_artifact(target)

    def engine(self, name: str, kind: str) -> Any:
        """An engine on an artifact of that kind, not yet entered."""
        options = dict(FORMS.get(name, {}))
        name = name.partition(" ")[0]
        package, dialect = ROWS[name]
        pytest.importorskip(package)
        if name == "torch" and kind != "demo":
            options = {"weights": str(self.weights(kind)), "probe": str(self.folder / "probe.pth")}
        if kind not in {"demo", "next"} and name not in ONLY:
            dialect = "portable"  # one export is enough for most
        return load(ENGINES[name][0])(self(kind, dialect), load_profile("cpu-1-thread"), options)

    def reference(self, kind: str) -> list[Any]:
        """What the checkpoint says."""
        if kind not in self._references:
            with self.engine("torch", kind) as engine:
                self._references[kind] = said(engine, engine.artifact)
        return self._references[kind]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


def tiles_of(artifact: Artifact, count: int) -> np.ndarray:
    p = artifact.manifest.preprocess
    assert p is not None
    return np.random.default_rng(1).standard_normal((count, 3, p.height, p.width)).astype(np.float32)


def prompt_of(artifact: Artifact, features: int) -> np.ndarray:
    """A prompt with these image tokens, and where rows have ends, with some."""
    text = artifact.manifest.text
    assert text is not None
    images = text.images
    seen = [] if images is None else [images.id] * features + [images.newline_id] * (3 if images.newline_id else 0)
    return np.array([1, 5, *seen, *range(6, 25)], dtype=np.int64)


def said(engine: Any, artifact: Artifact) -> list[Any]:
    """All that an engine gives: scores, or features and the logits of a prompt and four more tokens."""
    if artifact.manifest.kind == "classifier":
        return [engine.classify(tiles_of(artifact, 3))]
    features = empty_of(artifact)
    if artifact.manifest.kind == "vision-language":
        features = engine.see(tiles_of(artifact, 2))
    found = [features, engine.prefill(prompt_of(artifact, len(features)), features)]
    return [*found, *(engine.step(token) for token in (6, 9, 12, 15))]


def empty_of(artifact: Artifact) -> np.ndarray:
    decoder = artifact.manifest.decoder
    assert decoder is not None
    return np.zeros((0, decoder.hidden_size), dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        rarely(name, kind) if kind == "next" else (name, kind)
        for name in ROWS
        for kind in ("demo", "language", "encoder", "next")
        if kind in ONLY.get(name, {kind})
    ]
    + [("openvino passed", "language"), rarely("openvino passed", "demo")],
)
def test_an_engine_keeps_its_contract(name: str, kind: str, made: Made) -> None:
    engine = made.engine(name, kind)
    artifact = engine.artifact
    with engine as opened:
        facts = json.dumps(opened.facts())
        assert json.loads(facts)["engine"] == name.partition(" ")[0]
        assert str(made.folder) not in facts, "a record holds no path of this machine"
        first = said(opened, artifact)
        kept = [value.copy() for value in first]
        if artifact.manifest.kind == "classifier":
            batch = tiles_of(artifact, 3)
            singles = [opened.classify(batch[k : k + 1]) for k in range(3)]
            assert np.allclose(np.concatenate(singles), first[0], atol=1e-5)
            assert ((first[0] >= 0) & (first[0] <= 1)).all()
        else:
            spoken(opened, artifact, first, name)
        assert all(np.array_equal(a, b) for a, b in zip(first, kept, strict=True)), "a later call changed an answer"
        kept_as = np.float64 if artifact.manifest.kind == "classifier" else np.float32
        assert all(value.dtype == kept_as and np.isfinite(value).all() for value in first)
    with made.engine(name, kind) as again:
        for one, other in zip(said(again, artifact), first, strict=True):
            assert np.allclose(one, other, atol=LOGITS), "loaded again, it says the same"
    if name != "null":
        for one, other in zip(first, made.reference(kind), strict=True):
            assert one.shape == other.shape
            assert np.abs(one - other).max(initial=0) < LOGITS


def spoken(engine: Any, artifact: Artifact, first: list[Any], name: str) -> None:
    features, logits, *steps = first
    manifest = artifact.manifest
    ids = prompt_of(artifact, len(features))
    assert manifest.text is not None
    assert logits.shape == (manifest.text.vocab_size,) == steps[0].shape
    if manifest.text.images is not None:
        tiles = tiles_of(artifact, 2)
        assert len(features) == 2 * manifest.text.images.per_tile
        each = np.concatenate([engine.see(tiles[k : k + 1]) for k in range(2)])
        assert np.allclose(each, features, atol=1e-3), "a tile is seen alike alone and beside another"
        if name != "null":
            with pytest.raises(EngineError, match="image tokens"):
                engine.prefill(ids[ids != manifest.text.images.id], features)
    assert np.allclose(engine.prefill(ids, features), logits, atol=LOGITS), "a new prompt forgets the last answer"
    longer = np.append(ids, [6, 9])
    at_once = engine.prefill(longer, features)
    assert np.allclose(at_once, steps[1], atol=LOGITS), "read at once or token by token"
    if engine.keeps_prefix:
        for keep in (1, len(ids) - 2, len(ids) - 1):
            engine.prefill(longer, features)
            assert np.allclose(engine.prefill(ids, features, keep=keep), logits, atol=LOGITS)
            assert np.allclose(engine.step(6), steps[0], atol=LOGITS)


@pytest.mark.parametrize("name", [name for name in ROWS if name != "null"])
def test_without_an_artifact_it_says_what_to_do(name: str) -> None:
    pytest.importorskip(ROWS[name][0])
    with pytest.raises(EngineError, match=rf"'{name}' needs an artifact .*edgebench export"):
        load(ENGINES[name][0])(None, load_profile("cpu"), {})


def questions(path: Path, of_each: int | None) -> Path:
    """The mini benchmark, or its first questions of each category."""
    for package in ("cv2", "skimage", "sklearn"):
        pytest.importorskip(package)
    from edgebench.demo import mini
    from edgebench.demo.panels import composite

    if of_each is None:
        mini.write_forensics_mini(path)
        return path
    left = {entry.category: of_each for entry in mini.PLAN}
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerow(mini.COLUMNS)
        for index, (entry, draft) in enumerate(mini.drafts()):
            if not any(left.values()):
                break
            if left[entry.category]:
                left[entry.category] -= 1
                row = [index, mini.encode(composite(draft)), draft.question, *[*draft.options, "", ""][:4]]
                writer.writerow([*row, "ABCD"[draft.answer], entry.category, "test"])
    return path


@pytest.mark.parametrize("of_each", [1, rarely(None)])
def test_fp32_engines_give_the_same_greedy_answers(of_each: int | None, made: Made, tmp_path: Path) -> None:
    """The checkpoint's own answers, letter by letter; no option's log-probability is off by more than the bound."""
    from edgebench.benches.forensics import Forensics
    from edgebench.runner import HowToAsk, Query, Runner

    bench = Forensics.open(questions(tmp_path / "mini.tsv", of_each))
    queries = [Query(s.id, s.images, s.question) for s in bench.samples()]
    assert len(queries) == (1176 if of_each is None else 52)
    how = HowToAsk("generate", "llava", "lossless", 8)
    answers = {}
    for name in ("torch", *(n for n in SEEING if n not in {"null", "torch"})):
        with made.engine(name, "demo") as engine:
            runner = Runner(engine, engine.artifact, how)
            answers[name] = [runner.ask(query) for query in queries]
    reference = answers.pop("torch")
    assert answers
    assert len({a.text for a in reference}) > 2
    for name, found in answers.items():
        differ = [q.id for q, a, b in zip(queries, found, reference, strict=True) if a.text != b.text]
        assert not differ, (name, differ)
        for one, other in zip(found, reference, strict=True):
            assert one.option_logprobs == pytest.approx(other.option_logprobs, abs=NATS)


def test_the_checkpoint_is_a_base_without_parity_and_disagreements_are_listed(
    cli: Cli, made: Made, tmp_path: Path
) -> None:
    data = twins.write_tsv(tmp_path / "data.tsv", twins.rows(12))
    demo = made("demo", "ort").folder
    for name, more in (("torch", ["--option", "dtype=bf16"]), ("ort", []), ("null", [])):
        done = cli("run", demo, "--engine", name, "--data", data, "--max-new-tokens", 2, "-o", name, *more, "--json")
        assert done.code == 0, done.err
        if name == "torch":
            artifact = done.json["artifact"]
            assert (artifact["precision"], artifact["dialect"], artifact["parity"]) == ("bf16", "checkpoint", None)
            assert done.json["memory"]["artifact_bytes"] is None, "what lies in the artifact was not run"
            assert done.json["settings"]["options"] == ["dtype=bf16"]
    report = cli("report", "torch")
    assert "the checkpoint itself" in report.out
    done = cli("compare", "torch", "ort", "null", "--json")
    assert done.code == 0, done.err
    near, far = done.json["pairs"]
    assert 0 < near["largest_logprob_difference"] < 0.5, "bfloat16 is near, and not the same"
    given = [json.loads(line) for line in (cli.folder / "torch" / "records.jsonl").read_text().splitlines()]
    parsed = [r["id"] for r in given if r["kind"] == "answer" and r["answer"] != "Z"]
    assert [d["id"] for d in far["disagreements"]] == parsed, "the null engine answers nothing"
    assert parsed
    shown = cli("compare", "torch", "null").out
    assert "Answered differently" in shown
    assert all(f"│ {identity} " in shown for identity in parsed)


def test_another_checkpoint_is_refused(cli: Cli, made: Made, tmp_path: Path) -> None:
    data = twins.write_tsv(tmp_path / "data.tsv", twins.rows(2))
    demo, other = made("demo", "ort").folder, twins.write_llava(tmp_path / "other")
    away = load(ENGINES["torch"][0])(made("demo", "ort"), load_profile("cpu"), {"provider": "cuda:7"})
    with pytest.raises(EngineError, match="torch has no device 'cuda:7' here"), away:
        pass
    for options, words in (
        (["--engine", "torch", "--weights", other], "is not what the artifact came from (model: model.safetensors)"),
        (["--engine", "openvino"], "OpenVINO takes the dialect portable"),
        (["--engine", "torch", "--option", "dtyp=bf16"], "did you mean 'dtype'?"),
        (["--engine", "ort", "--weights", other], "runs the artifact's own weights"),
    ):
        if options[1] == "openvino":
            pytest.importorskip("openvino")
        done = cli("run", demo, "--data", data, "-o", f"out-{len(words)}", *options)
        assert done.code in {2, 7}, done.err
        assert words in done.err
        assert done.err.count("\n") == 1
