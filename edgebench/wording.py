"""The texts of Forensics-Bench's questions and options, as far as they are known (arXiv 2503.15024v2, appendix 8).

The wording for captions and plain videos is not published; those here follow the known ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Box = Sequence[int]

GENERATED = ("AI-generated", "non AI-generated")
MANIPULATED = ("AI-manipulated", "non AI-manipulated")
FORGED = ("forged", "non forged")
"""For forgeries that are not known to be either; not among the published options."""
IMAGE = "What is the authenticity of the image?"
VIDEO = "What is the authenticity of the video?"
IMAGE_TEXT = 'What is the authenticity of the image and its caption? The caption is "{caption}".'
MASKS = "Which segmentation map denotes the forged area in the image most accurately?"
MASK_SETS = "Which set of segmentation maps denotes the forged areas in the query image set most accurately?"
FRAMES = (
    "Please locate the forged frames in the given set of frames, which are sampled from a video. The output format "
    "should be the a list of indexes indicating the forged frames. The initial index starts from 0."
)
BOXES = (
    "Please detect the forged area in the image. The output format should be a list of bounding boxes, namely "
    "[x1, y1, x2, y2]. The image width is {width} and the height is {height}."
)
BOXES_TEXT = (
    'Please detect the forged area in the image and the forged text in the caption. The caption is "{caption}". '
    "The forged area is a list of bounding boxes, namely [x1, y1, x2, y2]. The image width is {width} and the height "
    "is {height}. The forged text is a list of token positions in the whole caption, which starts from 0. The token "
    "length of the input caption is {length}."
)
QUERY = "Query Image"
CANDIDATES = ("Candidate 1", "Candidate 2", "Candidate 3", "Candidate 4")


def frame_list(values: Sequence[int]) -> str:
    """Frames or coordinates as the published options write them: `[ 0, 1, 5 ]`, `[ ]`."""
    return "[ " + ", ".join(map(str, values)) + " ]" if values else "[ ]"


def forged_parts(boxes: Iterable[Box], words: Sequence[int] | None = None) -> str:
    """Boxes, and with `words` the forged token positions too, as the published options write them."""
    inner = ", ".join(map(frame_list, boxes))
    area = f"[ {inner} ]" if inner else "[]"
    if words is None:
        return f'{{ "forged area": {area} }}'
    return f'{{ "forged area": {area}, "forged text": {frame_list(words) if words else "[]"} }}'
