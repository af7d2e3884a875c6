"""P(forged) from logits, against torch's own softmax and sigmoid."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from edgebench.config import build
from edgebench.errors import ArtifactError
from edgebench.forged import p_forged
from edgebench.manifest import Manifest

torch = pytest.importorskip("torch")


def manifest(labels: tuple[str, ...], forged: tuple[int, ...], output: str = "logits") -> Manifest:
    plain = {
        "format": "edgebench-artifact/2",
        "name": "x",
        "family": "classifier",
        "dialect": "portable",
        "precision": "fp32",
        "graphs": {},
        "preprocess": None,
        "source": {"name": "x", "sha256": ""},
        "parity": None,
        "tools": {},
        "created": "",
        "labels": list(labels),
        "output": output,
        "forged": list(forged),
    }
    return build(Manifest, json.loads(json.dumps(plain)), where="here", error=ArtifactError)


LOGITS = np.random.default_rng(0).normal(0, 4, (64, 4)).astype(np.float32)


def test_forged_labels_add_up() -> None:
    expected = torch.from_numpy(LOGITS).double().softmax(-1).numpy()
    four = ("real", "gan", "diffusion", "spoof")
    assert np.allclose(p_forged(manifest(four, (1, 2, 3)), LOGITS), 1 - expected[:, 0], atol=1e-6)
    assert np.allclose(p_forged(manifest(four, (2,)), LOGITS), expected[:, 2], atol=1e-6)


def test_a_single_logit_is_a_sigmoids() -> None:
    one = LOGITS[:, :1]
    expected = torch.from_numpy(one[:, 0]).double().sigmoid().numpy()
    assert np.allclose(p_forged(manifest(("fake",), (0,)), one), expected, atol=1e-6)
    assert np.allclose(p_forged(manifest(("real",), ()), one), 1 - expected, atol=1e-6)


def test_large_logits_stay_finite_and_broken_ones_do_not_become_numbers() -> None:
    two = manifest(("real", "fake"), (1,))
    extreme = np.array([[-3e4, 3e4], [3e4, -3e4]], dtype=np.float16)
    assert p_forged(two, extreme).tolist() == [1.0, 0.0]
    assert np.isnan(p_forged(two, np.array([[np.nan, 0], [np.inf, 0]], dtype=np.float32))).all()


def test_what_a_network_is_sure_of_keeps_its_order() -> None:
    """A sigmoid in single precision is 0 below -104, and in ONNX Runtime below -18."""
    logits = np.array([[-600], [-110], [-40], [-18], [30], [33]], dtype=np.float32)
    for labels, forged, z in ((("fake",), (0,), logits), (("real",), (), -logits)):
        p = p_forged(manifest(labels, forged), z)
        assert (np.diff(p) > 0).all()
        assert np.allclose(np.log(p[:4]), logits[:4, 0], rtol=1e-6)


def test_a_probability_is_left_alone() -> None:
    out = np.array([0.25, 0.75], dtype=np.float16)
    assert p_forged(manifest(("real", "forged"), (), "probability"), out).tolist() == [0.25, 0.75]


def test_logits_of_another_count_are_refused() -> None:
    with pytest.raises(ArtifactError, match="names 2 labels"):
        p_forged(manifest(("real", "fake"), (1,)), LOGITS)


@pytest.mark.parametrize(
    ("labels", "forged"), [(("real", "fake"), ()), (("real", "fake"), (0, 1)), (("real", "fake"), (2,)), ((), ())]
)
def test_a_manifest_that_cannot_say_what_is_forged_is_refused(labels: tuple[str, ...], forged: tuple[int, ...]) -> None:
    with pytest.raises(ArtifactError, match="labels"):
        manifest(labels, forged)


def test_the_manifest_comes_back_as_it_was_written() -> None:
    m = manifest(("real", "fake"), (1,))
    again = build(Manifest, json.loads(json.dumps(dataclasses.asdict(m))), where="here")
    assert (again.labels, again.output, again.forged) == (("real", "fake"), "logits", (1,))
