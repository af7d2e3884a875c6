"""Published detectors: their known answers on real pictures, and files that are none."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgebench.errors import CheckpointError
from edgebench.manifest import Preprocess
from edgebench.media.decode import decode
from edgebench.media.pixels import pixels
from edgebench.metrics.binary import auroc
from edgebench.recipes import load_recipe
from edgebench.registry import load

torch = pytest.importorskip("torch")
pytest.importorskip("h5py")

from edgebench.checkpoints.networks import NETWORKS  # noqa: E402 - needs torch

FILES = {
    "mesonet-df": "mesonet/Meso4_DF.h5",
    "mesonet-f2f": "mesonet/Meso4_F2F.h5",
    "mesoinception-df": "mesonet/MesoInception_DF.h5",
    "mesoinception-f2f": "mesonet/MesoInception_F2F.h5",
    "minifasnet-v2": "minifasnet/2.7_80x80_MiniFASNetV2.pth",
    "minifasnet-v1se": "minifasnet/4_0_0_80x80_MiniFASNetV1SE.pth",
    "tiny-ladeda-wildrf": "tiny_ladeda/WildRF_Tiny_LaDeDa.pth",
    "tiny-ladeda-forensynth": "tiny_ladeda/ForenSynth_Tiny_LaDeDa.pth",
}


def ask(recipe: str, shared: Path, files: list[Path]) -> dict[str, float]:
    """P(forged) of each picture, through the recipe's own preprocessing."""
    chosen = load_recipe(recipe)
    network = load(NETWORKS[chosen.network or ""])(shared / "detectors" / FILES[recipe])
    assert isinstance(chosen.preprocess, Preprocess)
    with torch.inference_mode():
        return {
            f.name: float(network(torch.from_numpy(pixels(decode(f.read_bytes()), chosen.preprocess)))[0])
            for f in files
        }


@pytest.mark.parametrize(
    ("recipe", "p_real"),
    [
        ("mesonet-df", {"df00204.jpg": 0.041, "df01254.jpg": 0.049, "real00240.jpg": 0.990, "real00772.jpg": 0.998}),
        ("mesoinception-df", {"df00204.jpg": 0.026, "df01254.jpg": 0.001, "real00240.jpg": 1.0, "real00772.jpg": 1.0}),
    ],
)
def test_meso_gives_its_known_answers(recipe: str, p_real: dict[str, float], shared_data: Path) -> None:
    found = ask(recipe, shared_data, sorted((shared_data / "field" / "face_swap_mesonet").rglob("*.jpg")))
    assert {name: 1 - p for name, p in found.items()} == pytest.approx(p_real, abs=6e-4)


@pytest.mark.parametrize("recipe", ["minifasnet-v2", "minifasnet-v1se"])
def test_minifasnet_tells_the_print_the_replay_and_the_face(
    recipe: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "EDGEBENCH_YUNET", str(shared_data / "detectors" / "yunet" / "face_detection_yunet_2023mar.onnx")
    )
    found = ask(recipe, shared_data, sorted((shared_data / "field" / "presentation_attack").rglob("*.jpg")))
    assert found["image_F1.jpg"] > 0.5
    assert found["image_F2.jpg"] > 0.9
    assert found["image_T1.jpg"] < 0.1


def test_tiny_ladeda_ranks_generated_above_real(shared_data: Path) -> None:
    files = sorted(p for p in (shared_data / "field" / "ai_generated_dragon_openfake").rglob("*") if p.is_file())
    found = ask("tiny-ladeda-wildrf", shared_data, files)
    forged = np.array(["/forged/" in f.as_posix() for f in files])
    assert auroc(forged, np.array([found[f.name] for f in files])) == pytest.approx(0.827, abs=0.002)


@pytest.mark.parametrize("recipe", FILES)
def test_damaged_and_foreign_files(recipe: str, shared_data: Path, tmp_path: Path) -> None:
    build = load(NETWORKS[load_recipe(recipe).network or ""])
    good = shared_data / "detectors" / FILES[recipe]
    cut = tmp_path / good.name
    cut.write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    text = tmp_path / "weights.txt"
    text.write_text("hello")
    other = next(
        f for r, f in FILES.items() if load_recipe(r).network != load_recipe(recipe).network and f.endswith(good.suffix)
    )
    for wrong in (tmp_path / "absent", tmp_path, cut, text, shared_data / "detectors" / other):
        with pytest.raises(CheckpointError) as caught:
            build(wrong)
        assert "\n" not in str(caught.value)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return (Path.touch, (tmp_path / "exploded",))

    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps({"conv1.weight": Bomb()}))
    torch.save({"conv1.weight": Bomb()}, tmp_path / "zipped.pth")
    for file in (path, tmp_path / "zipped.pth"):
        with pytest.raises(CheckpointError, match="plain weights"):
            load(NETWORKS["minifasnet-v2"])(file)
    assert not (tmp_path / "exploded").exists()


def test_a_missing_tensor_is_named(shared_data: Path, tmp_path: Path) -> None:
    good = shared_data / "detectors" / FILES["tiny-ladeda-wildrf"]
    state = torch.load(good, map_location="cpu", weights_only=True)
    del state["fc.bias"]
    torch.save(state, tmp_path / "less.pth")
    with pytest.raises(CheckpointError, match=r"1 missing tensors, such as fc\.bias"):
        load(NETWORKS["tiny-ladeda-gradient"])(tmp_path / "less.pth")
    state["fc.bias"] = torch.zeros(2)
    torch.save(state, tmp_path / "shape.pth")
    with pytest.raises(CheckpointError, match="misshaped"):
        load(NETWORKS["tiny-ladeda-gradient"])(tmp_path / "shape.pth")
    shutil.copy(good, tmp_path / "good.pth")
    load(NETWORKS["tiny-ladeda-gradient"])(tmp_path / "good.pth")
