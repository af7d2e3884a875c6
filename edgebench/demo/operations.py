"""Forgery operations on small crops, done with OpenCV. Each draws all its settings from the generator it is given.

Every picture here is float32 [H, W, 3], RGB, 0..255, and every mask float32 [H, W], 0..1. `forge` applies one
operation by name, in a mask or on the whole crop. They are stand-ins for the families of forgery models that a
benchmark names: they leave the kind of trace such a model leaves, not its content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.random import Generator
    from numpy.typing import NDArray

    Picture = NDArray[np.float32]
    Mask = NDArray[np.float32]

try:
    import cv2 as _cv2
except ImportError as error:  # pragma: no cover - depends on what is installed
    raise MissingExtraError("the demo needs OpenCV", hint="pip install 'edgebench[demo]'") from error

cv2: Any = _cv2


def local_mask(rng: Generator, side: int, window: int) -> tuple[Mask, Mask]:
    """A region to forge: ellipse, rectangle or polygon of 7 to 32 % of the window's area.

    Args:
        rng: where the settings come from.
        side: side of the crop, pixels.
        window: side of the central part that will be shown; the region's centre lies inside it.

    Returns:
        (hard, soft): hard is 0 or 1; soft has its edge feathered by a Gaussian of sigma 0, 0.6 or 1.0 pixels.
    """
    hard = np.zeros((side, side), dtype=np.uint8)
    area = rng.uniform(0.07, 0.32) * window * window
    ratio = rng.uniform(0.55, 1.8)
    a, b = np.sqrt(area * ratio) / 2, np.sqrt(area / ratio) / 2
    edge = (side - window) / 2 + window * 0.2
    cx, cy = rng.uniform(edge, side - edge, 2)
    shape = int(rng.integers(3))
    angle = rng.uniform(0, 180)
    if shape == 0:
        axes = (round(a * 1.128), round(b * 1.128))
        cv2.ellipse(hard, (round(cx), round(cy)), axes, angle, 0, 360, 1, -1)
    elif shape == 1:
        cv2.fillPoly(hard, [np.round(cv2.boxPoints(((cx, cy), (2 * a, 2 * b), angle))).astype(np.int32)], 1)
    else:
        corners = int(rng.integers(6, 11))
        turns = np.sort(rng.uniform(0, 2 * np.pi, corners))
        radii = rng.uniform(0.85, 1.5, corners)
        points = np.stack([cx + a * radii * np.cos(turns), cy + b * radii * np.sin(turns)], axis=1)
        cv2.fillPoly(hard, [np.round(points).astype(np.int32)], 1)
    sigma = (0.0, 0.6, 1.0)[int(rng.integers(3))]
    full = hard.astype(np.float32)
    return full, (cv2.GaussianBlur(full, (0, 0), sigma) if sigma else full)


def camera(image: Picture, rng: Generator) -> Picture:
    """A sensor's noise: with probability .8, sigma .6 to 4.5 grey levels at full light, less in the shade."""
    if rng.random() > 0.8:
        return image
    sigma = np.exp(rng.uniform(np.log(0.6), np.log(4.5)))
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    if rng.random() < 0.5:
        noise = cv2.GaussianBlur(noise, (0, 0), 0.6) * 1.6
    light = np.sqrt(np.clip(image, 8, 255) / 255)
    return np.asarray(image + noise * light * sigma, dtype=np.float32)


def copymove(image: Picture, rng: Generator, donor: Picture, mask: Mask) -> Picture:
    """Another part of the same crop over the region, mostly rotated (+-25 degrees) and scaled (.85 to 1.3)."""
    side = image.shape[0]
    while True:
        dx, dy = rng.uniform(-0.5, 0.5, 2) * side
        if np.hypot(dx, dy) > 24:
            break
    angle, scale = (rng.uniform(-25, 25), rng.uniform(0.85, 1.3)) if rng.random() < 0.8 else (0.0, 1.0)
    matrix = cv2.getRotationMatrix2D((side / 2, side / 2), angle, scale)
    whole = scale == 1.0
    matrix[:, 2] += (round(dx), round(dy)) if whole else (dx, dy)
    return _picture(
        cv2.warpAffine(image, matrix, (side, side), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
    )


def splice(image: Picture, rng: Generator, donor: Picture, mask: Mask) -> Picture:
    """A part of another photograph with its own noise, scaled .8 to 1.4."""
    side = image.shape[0]
    scale = rng.uniform(0.8, 1.4)
    matrix = cv2.getRotationMatrix2D((side / 2, side / 2), rng.uniform(-20, 20), scale)
    moved = cv2.warpAffine(donor, matrix, (side, side), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
    return camera(_picture(moved), rng) if rng.random() < 0.5 else _picture(moved)


def removal(image: Picture, rng: Generator, donor: Picture, mask: Mask) -> Picture:
    """The region filled from its border: Telea's or the Navier-Stokes inpainting, radius 3 to 5."""
    method = cv2.INPAINT_TELEA if rng.random() < 0.5 else cv2.INPAINT_NS
    hole = cv2.dilate((mask > 0.02).astype(np.uint8), np.ones((3, 3), np.uint8))
    plain = np.clip(image, 0, 255).astype(np.uint8)
    return _picture(cv2.inpaint(plain, hole, int(rng.integers(3, 6)), method))


def resynth(image: Picture, rng: Generator, donor: Picture, mask: Mask) -> Picture:
    """Through a bottleneck of half the size, back by an uneven up-convolution, as decoders do."""
    height, width = image.shape[:2]
    small = cv2.resize(image, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    if rng.random() < 0.6:
        wide = np.zeros_like(image)
        wide[::2, ::2] = small
        kernel = np.outer([0.5, 1.0, 0.5], [0.5, 1.0, 0.5]) * rng.uniform(0.8, 1.2, (3, 3))
        kernel *= 4 / kernel.sum()
        out = cv2.filter2D(wide, -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    else:
        out = cv2.resize(small, (width, height), interpolation=cv2.INTER_NEAREST)
        light = rng.uniform(0.1, 0.35)
        line = np.array([light, 1.0, light]) / (1 + 2 * light)
        out = cv2.sepFilter2D(out, -1, line, line)
    noise = rng.standard_normal(image.shape, dtype=np.float32) * rng.uniform(0.3, 1.5)
    return _picture(out + noise)


def diffusion(image: Picture, rng: Generator, donor: Picture, mask: Mask) -> Picture:
    """Noise of sigma 10 to 22, then denoised by bilateral filters, half of the time sharpened again."""
    noisy = image + rng.standard_normal(image.shape, dtype=np.float32) * rng.uniform(10, 22)
    noisy = np.clip(noisy, 0, 255).astype(np.float32)
    for _ in range(2):
        noisy = cv2.bilateralFilter(noisy, 5, rng.uniform(35, 60), rng.uniform(1.5, 3.0))
    if rng.random() < 0.5:
        noisy = noisy + (noisy - cv2.GaussianBlur(noisy, (0, 0), 1.2)) * rng.uniform(0.5, 1.0)
    return _picture(noisy)


def style(image: Picture, rng: Generator, donor: Picture, mask: Mask) -> Picture:
    """A translation to a painted look: stylization, edge-preserving smoothing, or median and few tones."""
    plain = np.clip(image, 0, 255).astype(np.uint8)
    kind = int(rng.integers(3))
    if kind == 0:
        return _picture(cv2.stylization(plain, sigma_s=rng.uniform(5, 20), sigma_r=rng.uniform(0.2, 0.45)))
    if kind == 1:
        sigma_s, sigma_r = rng.uniform(10, 40), rng.uniform(0.2, 0.5)
        return _picture(cv2.edgePreservingFilter(plain, flags=1, sigma_s=sigma_s, sigma_r=sigma_r))
    step = rng.uniform(12, 26)
    soft = cv2.medianBlur(plain, 5).astype(np.float32)
    return _picture(np.round(soft / step) * step)


def enhance(image: Picture, rng: Generator, donor: Picture, mask: Mask) -> Picture:
    """Unsharp masking (amount 1.0 to 2.2, sigma .8 to 1.8), a gamma, and saturation 1.2 to 1.6."""
    out = image + (image - cv2.GaussianBlur(image, (0, 0), rng.uniform(0.8, 1.8))) * rng.uniform(1.0, 2.2)
    out = 255 * (np.clip(out, 0, 255) / 255) ** rng.uniform(0.75, 1.3)
    grey = out.mean(axis=2, keepdims=True)
    return _picture(grey + (out - grey) * rng.uniform(1.2, 1.6))


def recapture(image: Picture, rng: Generator, donor: Picture, mask: Mask, kind: str | None = None) -> Picture:
    """A photograph of a print (dots, period 2.6 to 4.5 pixels) or of a screen (moire, period 2.2 to 6)."""
    side = image.shape[0]
    out = cv2.GaussianBlur(image, (0, 0), rng.uniform(0.5, 1.1))
    y, x = np.mgrid[:side, :side].astype(np.float32)
    turn = rng.uniform(0, np.pi)
    u, v = x * np.cos(turn) + y * np.sin(turn), -x * np.sin(turn) + y * np.cos(turn)
    if (kind or ("print", "replay")[int(rng.integers(2))]) == "print":
        period = rng.uniform(2.6, 4.5)
        dots = np.sin(2 * np.pi * u / period) * np.sin(2 * np.pi * v / period)
        out = out + dots[..., None] * rng.uniform(8, 22)
    else:
        period, phases = rng.uniform(2.2, 6), rng.uniform(0, 2 * np.pi, 3)
        waves = np.sin(2 * np.pi * u[..., None] / period + phases)
        out = out + waves * rng.uniform(5, 14)
    return _picture((out - 128) * rng.uniform(0.7, 0.95) + 128 + rng.uniform(-8, 12))


def recapture_print(image: Picture, rng: Generator, donor: Picture, mask: Mask) -> Picture:
    """`recapture` of a print."""
    return recapture(image, rng, donor, mask, "print")


def recapture_replay(image: Picture, rng: Generator, donor: Picture, mask: Mask) -> Picture:
    """`recapture` of a screen."""
    return recapture(image, rng, donor, mask, "replay")


OPERATIONS: dict[str, Callable[[Picture, Generator, Picture, Mask], Picture]] = {
    "copymove": copymove,
    "splice": splice,
    "removal": removal,
    "resynth": resynth,
    "diffusion": diffusion,
    "style": style,
    "enhance": enhance,
    "print": recapture_print,
    "replay": recapture_replay,
}
LOCAL_ONLY = ("copymove", "splice", "removal")
"""Operations that mean nothing on a whole picture."""


def forge(image: Picture, operation: str, rng: Generator, donor: Picture, mask: Mask | None) -> Picture:
    """One operation on one crop.

    Args:
        image: the crop.
        operation: a key of `OPERATIONS`.
        rng: where the settings come from.
        donor: a crop of another photograph, used by splicing only.
        mask: where, 0..1; None for the whole crop.

    Raises:
        UsageError: no such operation, or one that needs a mask and has none.
    """
    if operation not in OPERATIONS or (mask is None and operation in LOCAL_ONLY):
        raise UsageError(f"no operation {operation!r} {'without' if mask is None else 'with'} a mask")
    everywhere = np.ones(image.shape[:2], dtype=np.float32)
    changed = OPERATIONS[operation](image, rng, donor, everywhere if mask is None else mask)
    if mask is None:
        return changed
    return _picture(image + mask[..., None] * (np.clip(changed, 0, 255) - image))


def _picture(value: Any) -> Picture:
    return np.asarray(value, dtype=np.float32)
