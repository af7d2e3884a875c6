"""A relevancy map as a picture, and what was said about a sample as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from edgebench.report.render import clean, escaped
from edgebench.report.tables import UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgebench.records import Record

SIDE = 448
"""A picture is drawn with its longer side so long."""
MARGIN, LINE, BAR = 12, 20, 16
FOR, AGAINST = (200, 30, 30), (30, 70, 200)
"""Colours of places that speak for the answer, and against it."""
STRONGEST = 0.75
"""Opacity of the largest value."""


def relevancy_picture(
    pictures: list[NDArray[np.uint8]], maps: list[NDArray[np.float64]], cell: int, words: list[str]
) -> Image.Image:
    """Each picture beside itself under its map, and the scale below.

    Args:
        pictures: uint8 [H, W, 3] each.
        maps: float64 [rows, columns] each, cells of `cell` pixels; above 0 speaks for the answer.
        cell: side of a cell, in the picture's pixels.
        words: lines above.
    """
    largest = max((float(np.abs(m).max()) for m in maps), default=0.0)
    rows = [_pair(p, m, cell, largest) for p, m in zip(pictures, maps, strict=True)]
    width = max(2 * SIDE + MARGIN, *(row.width for row in rows)) + 2 * MARGIN
    height = MARGIN + LINE * len(words) + sum(row.height + MARGIN for row in rows) + BAR + 2 * LINE + MARGIN
    sheet = Image.new("RGB", (width, height), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=14)
    at = MARGIN
    for line in words:
        draw.text((MARGIN, at), clean(line)[:120], fill="black", font=font)
        at += LINE
    for row in rows:
        sheet.paste(row, (MARGIN, at))
        at += row.height + MARGIN
    across = np.linspace(-1, 1, width - 2 * MARGIN)
    white = np.full((1, len(across), 3), 255, dtype=np.uint8)
    scale = Image.fromarray(_blend(white, across[None]))
    sheet.paste(scale.resize((len(across), BAR)), (MARGIN, at))
    ends = (
        (f"{-largest:.3g}: against", "la", MARGIN),
        ("0", "ma", width // 2),
        (f"for: {largest:+.3g}", "ra", width - MARGIN),
    )
    for text, anchor, place in ends:
        draw.text((place, at + BAR + 4), text, fill="black", font=font, anchor=anchor)
    return sheet


def _pair(picture: NDArray[np.uint8], found: NDArray[np.float64], cell: int, largest: float) -> Image.Image:
    height, width = picture.shape[:2]
    spread = np.repeat(np.repeat(found, cell, axis=0), cell, axis=1)[:height, :width]
    over = _blend(picture, spread / largest if largest else spread)
    factor = SIDE / max(height, width)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    both = Image.new("RGB", (2 * size[0] + MARGIN, size[1]), "white")
    for number, pixels in enumerate((picture, over)):
        both.paste(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS), (number * (size[0] + MARGIN), 0))
    return both


def _blend(picture: NDArray[np.uint8], share: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Colour over a picture; `share` in [-1, 1], [H, W]."""
    colour = np.where(share[..., None] > 0, np.array(FOR), np.array(AGAINST))
    opacity = STRONGEST * np.abs(share)[..., None]
    mixed: NDArray[np.uint8] = np.rint((1 - opacity) * picture + opacity * colour).astype(np.uint8)
    return mixed


def said_markdown(record: Record) -> str:
    """Each step of an answer: what was asked, looked up, said. Texts of models and data are never taken for markup."""
    lines = [
        f"# {escaped(record.id)}",
        "",
        f"Right answer: {escaped(record.target)}. Answer: {escaped(record.answer or UNKNOWN)}, found by {escaped(record.method or UNKNOWN)}.",
    ]
    for number, call in enumerate(record.trace, 1):
        lines += ["", f"## {number}. {call.step.replace('_', ' ')}", "", *_took(call)]
        if call.knowledge is not None:
            known = call.knowledge
            source = ", ".join(escaped(t) for t in (known.title, known.source, known.reason) if t)
            lines += ["", f"Looked up {escaped(known.query)!r}: {known.status}" + (f" ({source})" if source else "")]
            lines += _quoted("", known.text)
        lines += _quoted("Asked:", call.prompt)
        lines += _quoted("Said:", call.text)
        if call.score is not None:
            lines += ["", f"P(forged) {call.score:.4f}"]
    if not record.trace:
        lines += _quoted("Said:", record.text)
        if record.score is not None:
            lines += ["", f"P(forged) {record.score:.4f}"]
    return "\n".join(lines) + "\n"


def _took(call: Any) -> list[str]:
    total = call.stages_ns.get("total")
    parts = [
        None if total is None else f"{total / 1e6:.1f} ms",
        None if call.prompt_tokens is None else f"{call.prompt_tokens} tokens read",
        None if call.output_tokens is None else f"{call.output_tokens} written",
        "cut off at the limit" if call.finish == "length" else None,
    ]
    return [", ".join(p for p in parts if p)]


def _quoted(head: str, text: str | None) -> list[str]:
    if not text:
        return []
    return ["", *([head, ""] if head else []), *(f"> {escaped(line, whole=True)}  " for line in text.splitlines())]
