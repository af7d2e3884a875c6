"""Attention times gradient: against what covering does, where the answer hangs on one known place; by the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.manifest import Preprocess
from edgebench.media.geometry import placements, spread
from tests import twins
from tests.conftest import Cli
from tests.test_explain import corner_model, labelled
from tests.test_run import answers

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from edgebench.checkpoints.reference import load_reference  # noqa: E402 - needs torch
from edgebench.checkpoints.vision import VisionPart  # noqa: E402
from edgebench.engines.attention import relevance  # noqa: E402

IMAGE = 4


def planted(folder: Path, *, mixing: bool) -> Any:
    """A LLaVA of random weights that looks once: the decoder in its first layer, and `mixing` the tower in its own first.

    Without biases, positions and a class token, grey patches are zeros and stay so wherever nothing is looked at.
    """
    twins.write_llava(folder, image_size=70)
    model = load_reference(folder, "LlavaForConditionalGeneration")
    with torch.no_grad():
        for name, parameter in model.model.named_parameters():
            silent = name.endswith("bias") or "position_embedding" in name or "class_embedding" in name
            tower_looks = "out_proj" in name and not (mixing and "layers.0." in name)
            decoder_looks = "o_proj" in name and "layers.0." not in name
            if silent or tower_looks or decoder_looks or "down_proj" in name:
                parameter.zero_()
    return model


@pytest.mark.parametrize("mixing", [False, True])
def test_it_finds_the_only_place_that_says_anything(tmp_path: Path, mixing: bool) -> None:
    """One patch of a picture is not grey: covering any other changes nothing, and covering that one moves the answer.

    mixing: the decoder is shown another patch alone, which knows of that one by the tower's attention.
    """
    model = planted(tmp_path / "twin", mixing=mixing)
    config = model.config.vision_config
    side, patch = config.image_size // config.patch_size, config.patch_size
    draw = np.random.default_rng(0)
    for place, shown in draw.permutation(side**2)[:12].reshape(6, 2).tolist():
        used = torch.tensor([shown]) if mixing else torch.arange(side**2)
        ids = torch.tensor([1, 40, 41, *[IMAGE] * len(used), 50, 51, 52, 39])

        def embedded(asked: Any, features: Any) -> Any:
            embeds = model.get_input_embeddings()(asked[None])
            embeds[0, asked == IMAGE] = features
            return embeds

        def said(pixels: Any, ids: Any = ids, used: Any = used) -> Any:
            with torch.inference_mode():
                out = model.model.language_model(inputs_embeds=embedded(ids, VisionPart(model)(pixels)[0][used]))
                return model.lm_head(out.last_hidden_state[0, -1]).log_softmax(-1)

        pixels = torch.zeros(1, 3, config.image_size, config.image_size)
        covered = said(pixels)
        top, left = divmod(place, side)
        colour = torch.from_numpy(draw.normal(size=(3, patch, patch)).astype(np.float32))
        pixels[0, :, top * patch : (top + 1) * patch, left * patch : (left + 1) * patch] = colour
        falls = said(pixels) - covered
        answer = int(falls.argmax())
        assert falls[answer] > 0.001, "the place speaks for it"
        maps, value = relevance(model, pixels, used, ids, ids == IMAGE, embedded, ([answer], []))
        assert value == pytest.approx(float(said(pixels)[answer]), abs=1e-5)
        assert float(maps[0, place]) > 0
        places = set(maps[0].nonzero().flatten().tolist())
        assert places == ({place, shown} if mixing else {place})


def test_values_of_a_tile_lie_where_the_tile_was_cut() -> None:
    """A square that was padded, a row of tiles with gaps, a centre that was cut out of a resized picture."""
    kinds: dict[str, dict[str, Any]] = {
        "pad_square": {"height": 8, "width": 8, "pad_colour": (1, 2, 3)},
        "tile_rows": {"height": 4, "width": 4, "gap": 2},
        "shortest_edge_crop": {"height": 6, "width": 6, "shortest_edge": 8},
    }
    found = {}
    for kind, facts in kinds.items():
        shape = {"pad_square": (8, 16), "tile_rows": (4, 10), "shortest_edge_crop": (16, 32)}[kind]
        p, over = Preprocess(kind=kind, **facts), np.zeros(shape)  # type: ignore[arg-type]
        for number, place in enumerate(placements(np.zeros((*shape, 3), np.uint8), p)):
            spread(np.array([[1, 2], [3, 4]], np.float32) * 10**number, place, over)
        found[kind] = over
    pad = found["pad_square"]
    assert [pad[:4, :8].sum(), pad[:4, 8:].sum(), pad[4:, :8].sum(), pad[4:, 8:].sum()] == pytest.approx(
        [0.5, 1, 1.5, 2]
    ), "half of each part lies on padding"
    rows = found["tile_rows"]
    assert rows[:, 4:6].sum() == 0, "the gap"
    assert [rows[:2, :2].sum(), rows[2:, 8:].sum(), rows[:, 6:].sum()] == pytest.approx([1, 40, 100])
    cut = found["shortest_edge_crop"]
    assert cut.sum() == pytest.approx(10)
    assert cut[2:14, 10:22].sum() == pytest.approx(10), "6 of 8 rows, twice as large, in the middle"
    assert cut[2:8, 10:16].sum() == pytest.approx(1)


def test_by_the_command(cli: Cli, demo_artifact: Path) -> None:
    """What the demo model answers is what the run holds, by one pass over the checkpoint; others are refused."""
    twins.write_tsv(cli.folder / "F.tsv", twins.rows(1))
    run = ("run", demo_artifact, "--data", "F.tsv", "--scoring", "logits", "-o", "out")
    assert cli(*run).code == 0
    (record,) = answers(cli.folder / "out")
    common = ("--data", "F.tsv", "--artifact", demo_artifact, "--method", "attention", "--json")
    done = cli("explain", "out", record["id"], *common, "-o", "map.png")
    assert done.code == 0, done.err
    value = done.json
    assert (value["method"], value["questions"]) == ("attention", 1)
    assert value["value"] == pytest.approx(value["recorded"], abs=1e-3)
    assert value["recorded"] == record["option_logprobs"][value["answer"]]
    (cells,) = np.array(value["maps"])
    assert cells.min() >= 0 and cells.max() > 0
    assert (cli.folder / "map.png").stat().st_size > 1000
    corner_model(cli.folder / "corner")
    labelled(cli.folder / "set", count=1)
    assert cli("run", "corner", "--bench", "images", "--data", "set", "-o", "other").code == 0
    refused = cli("explain", "other", "real/00.jpg", "--data", "set", "--method", "attention")
    assert (refused.code, "take --method occlusion" in refused.err) == (2, True), refused.err
