"""LNP: its steps against the published ones, written out with numpy, and its two files through the export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebench.engines.ort import OrtEngine
from edgebench.errors import CheckpointError
from edgebench.manifest import read_artifact
from edgebench.profiles import load_profile
from tests.conftest import exported

torch = pytest.importorskip("torch")

from torch.nn.functional import conv2d, prelu  # noqa: E402 - needs torch

from edgebench.checkpoints.networks import cnnspot, lnp  # noqa: E402
from edgebench.export import classifier  # noqa: E402


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published layout, a quarter as wide and less deep."""
    for name, value in (("FEATURES", 16), ("GROUPS", 2), ("BLOCKS", 2)):
        monkeypatch.setattr(lnp, name, value)
    monkeypatch.setattr(classifier, "IMAGES", 2)
    stages = tuple((c // 4, 1, stride) for c, _, stride in cnnspot.STAGES)
    monkeypatch.setattr(cnnspot, "STAGES", stages)


def write(folder: Path, channels: int = 3) -> Path:
    """Both files as they are published: in a dict beside other things, the denoiser's names with 'module.'."""
    folder.mkdir()
    torch.manual_seed(1)
    denoiser, resnet = lnp.Denoiser(), cnnspot.CnnSpot(channels)
    with torch.no_grad():
        denoiser.tail[0].get_parameter("weight").mul_(3)
        resnet.fc.weight *= 20
    told = {f"module.{name}": tensor for name, tensor in denoiser.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": told, "optimizer": {}}, folder / "sidd_rgb.pth")
    torch.save({"model": resnet.state_dict(), "optimizer": {}, "total_steps": 9}, folder / "LNP.pth")
    return folder


def noise(state: dict[str, Any], picture: Any) -> Any:
    """The denoiser over the published names, with functions alone."""

    def conv(name: str, x: Any) -> Any:
        weight = state[f"{name}.weight"]
        return conv2d(x, weight, state.get(f"{name}.bias"), padding=weight.shape[-1] // 2)

    def attended(name: str, x: Any) -> Any:
        inner = conv(f"{name}.body.2", prelu(conv(f"{name}.body.0", x), state[f"{name}.body.1.weight"]))
        largest, mean = inner.max(dim=1, keepdim=True)[0], inner.mean(dim=1, keepdim=True)
        spatial = inner * conv(f"{name}.SA.spatial.conv", torch.cat([largest, mean], 1)).sigmoid()
        pooled = torch.nn.functional.adaptive_avg_pool2d(inner, 1)
        channel = inner * conv(f"{name}.CA.conv_du.2", conv(f"{name}.CA.conv_du.0", pooled).relu()).sigmoid()
        return conv(f"{name}.conv1x1", torch.cat([spatial, channel], 1)) + x

    x = conv("head.0", picture)
    for group in range(2):
        y = x
        for block in range(2):
            y = attended(f"body.{group}.body.{block}", y)
        x = x + conv(f"body.{group}.body.2", y)
    return -conv("tail.0", prelu(conv("body.2", x), state["body.3.weight"]))


def published(folder: Path, pictures: Any) -> Any:
    """P(forged) step by step: 8-bit arithmetic that wraps, a picture that is saved as BGR and read as RGB, the FFT."""
    state = torch.load(folder / "sidd_rgb.pth", weights_only=True)["state_dict"]
    found = noise({name.removeprefix("module."): tensor for name, tensor in state.items()}, pictures)
    saved = np.rint(found.clamp(0, 1).numpy() * np.float32(255)).astype(np.uint8) * np.uint8(255)
    read = torch.from_numpy(saved[:, ::-1, 16:240, 16:240].astype(np.float32) / 255)
    mean, std = (torch.tensor(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    x = (read - mean) / std
    own = torch.load(folder / "LNP.pth", weights_only=True)["model"]
    if own["conv1.weight"].shape[1] == 5:
        fft = torch.fft.fftn(x, dim=(2, 3), norm="ortho")
        parts = (torch.pow(fft.abs() + 1e-8, 0.8), torch.atan2(fft.imag + 1e-8, fft.real + 1e-8))
        shifted = [torch.fft.fftshift(part, dim=(2, 3)) for part in parts]
        grey = [0.11 * part[:, 0] + 0.59 * part[:, 1] + 0.3 * part[:, 2] for part in shifted]
        x = torch.cat([x, torch.stack(grey, 1)], 1)
    network = cnnspot.CnnSpot(x.shape[1])
    network.load_state_dict(own)
    return network.eval()(x).numpy()


@pytest.mark.parametrize("channels", [3, 5])
def test_it_answers_as_the_published_steps(tmp_path: Path, channels: int) -> None:
    """The network, and for the noise alone the graph that it becomes."""
    folder = write(tmp_path / "weights", channels)
    draw = np.random.default_rng(7)
    smooth = np.repeat(np.repeat(draw.random((3, 3, 8, 8)), 32, 2), 32, 3)
    strength = np.array([0, 0.1, 0.5])[:, None, None, None]
    pictures = np.clip(smooth + strength * draw.normal(size=(3, 3, 256, 256)), 0, 1).astype(np.float32)
    with torch.inference_mode():
        wanted = published(folder, torch.from_numpy(pictures))
        found = lnp.load_lnp(folder / "LNP.pth")(torch.from_numpy(pictures)).numpy()
    spread = float(wanted.max() - wanted.min())
    assert spread > 1e-3, "the answers tell the pictures apart"
    assert found == pytest.approx(wanted, abs=spread / 1000)
    if channels == 5:
        return
    artifact = read_artifact(exported("lnp", folder, tmp_path / "lnp"))
    assert set(artifact.manifest.source.files) == {"LNP.pth", "sidd_rgb.pth"}
    with OrtEngine(artifact, load_profile("cpu-1-thread"), {}) as engine:
        assert engine.classify(pictures) == pytest.approx(wanted, abs=spread / 50)


def test_wrong_and_missing_files_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = write(tmp_path / "weights")
    for change, said in (
        (lambda: torch.save({"conv1.weight": torch.zeros(64, 4, 7, 7)}, folder / "LNP.pth"), "3 or 5"),
        (lambda: (folder / "LNP.pth").write_bytes((folder / "sidd_rgb.pth").read_bytes()), "is not a CnnSpot"),
        (lambda: (write(tmp_path / "x"), (tmp_path / "x/LNP.pth").replace(folder / "sidd_rgb.pth")), "not a Denoiser"),
        (lambda: (folder / "sidd_rgb.pth").unlink(), "CycleISP"),
    ):
        if not (folder / "LNP.pth").exists() or said in {"not a Denoiser", "CycleISP"}:
            torch.save({"model": cnnspot.CnnSpot().state_dict()}, folder / "LNP.pth")
        change()
        with pytest.raises(CheckpointError, match=said) as caught:
            lnp.load_lnp(folder / "LNP.pth")
        assert "\n" not in str(caught.value)
