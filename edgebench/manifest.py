"""What an exported artifact is: `manifest.json`, written last.

Export and engines meet here only. A folder without a manifest is an unfinished export; an engine trusts the
manifest and nothing else in the folder. Every file that the manifest names carries its SHA-256.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from edgebench.config import build
from edgebench.errors import ArtifactError
from edgebench.work import Work

FORMAT = "edgebench-artifact/2"
MANIFEST = "manifest.json"
RGB = tuple[float, float, float]
Family = Literal["classifier", "encoder", "text_classifier", "image_text_classifier", "llava", "llava_next", "language"]
Kind = Literal["classifier", "text-classifier", "image-text-classifier", "vision-language", "language"]
"""classifier: image -> P(forged). text-classifier: text -> P(forged). image-text-classifier: both. vision-language: images and
text -> text. language: text alone."""


@dataclass(frozen=True)
class Preprocess:
    """Everything that decides a pixel between the file and the graph's input.

    Order: decode, orientation, alpha, geometry (`kind`), uint8 -> `value * scale` -> `(value - mean) / std`.
    """

    kind: Literal[
        "resize",
        "shortest_edge_crop",
        "centre_crop",
        "pad_square",
        "anyres_tiles",
        "smart_resize",
        "face_crop",
        "tile_rows",
    ]
    """resize: to height x width (SigLIP). shortest_edge_crop: shortest edge to `shortest_edge`, then a centre crop
    (CLIP). centre_crop: the centre as it is, black where the picture is smaller (torchvision; UnivFD). pad_square: pad to a square with `pad_colour`, then resize (LLaVA-1.5). anyres_tiles: one tile of the
    whole picture, then the tiles of the best of `grids` (LLaVA-NeXT). smart_resize: to multiples of patch x merge
    within min_pixels and max_pixels, as flat patches (Qwen2-VL). face_crop: crop `face_scale` x the face box, then
    resize. tile_rows: cut a composite of panels into tiles, without resizing."""
    height: int
    """Rows of one input tile, in pixels; 0 for smart_resize, whose size follows the picture's."""
    width: int
    filter: Literal["bicubic", "bilinear", "nearest", "lanczos", "box", "hamming"] = "bicubic"
    """Pillow's antialiased filter of that name."""
    scale: float = 1 / 255
    mean: RGB = (0.0, 0.0, 0.0)
    std: RGB = (1.0, 1.0, 1.0)
    shortest_edge: int | None = None
    pad_colour: tuple[int, int, int] | None = None
    face_scale: float | None = None
    """Side of the crop over the side of the face box."""
    face_source: Literal["whole_image", "detect"] | None = None
    gap: int = 0
    """tile_rows: pixels between panels."""
    title: int = 0
    """tile_rows: height in pixels of a title strip above each panel."""
    grids: tuple[tuple[int, int], ...] = ()
    """anyres_tiles: possible sizes (rows, columns), multiples of the tile's."""
    patch: int = 14
    """smart_resize: side of a patch."""
    merge: int = 2
    """smart_resize: patches that become one token, a side."""
    temporal: int = 2
    """smart_resize: frames in a patch; a picture is repeated."""
    min_pixels: int | None = None
    max_pixels: int | None = None
    orientation: Literal["exif", "ignore"] = "exif"
    alpha: Literal["drop", "white"] = "drop"
    decoder: Literal["exact"] = "exact"
    """exact: Pillow's pixels, whichever library makes them (libjpeg-turbo's accurate DCT and smooth upsampling)."""
    pass_order: Literal["pillow-13", "horizontal"] = "pillow-13"  # noqa: S105 - no password
    """Which direction is resampled first: by Pillow 13's rule, or always across, as up to Pillow 12."""
    dtype: Literal["float32", "float16", "uint8"] = "float32"
    """uint8 leaves scale, mean and deviation to the graph."""
    layout: Literal["nchw", "nhwc"] = "nchw"

    def __post_init__(self) -> None:
        needed = {
            "shortest_edge_crop": ("shortest_edge",),
            "pad_square": ("pad_colour",),
            "face_crop": ("face_scale",),
            "anyres_tiles": ("grids",),
            "smart_resize": ("min_pixels", "max_pixels"),
        }.get(self.kind, ())
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f"preprocess kind {self.kind!r} needs {name!r}")
        if min(self.patch, self.merge, self.temporal) < 1 or min(self.std) <= 0:
            raise ValueError("patch, merge, temporal and std must be positive")
        if self.kind != "smart_resize" and min(self.height, self.width) < 1:
            raise ValueError("height and width must be positive")
        if any(rows % self.height or columns % self.width for rows, columns in self.grids):
            raise ValueError("grids must be multiples of height and width")

    def passport(self) -> str:
        """SHA-256 over all of it: two runs with different passports saw different pixels."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class TensorFact:
    """One graph input or output."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    """Static sizes as numbers, dynamic ones by name."""


@dataclass(frozen=True)
class FileFact:
    """One file of the artifact, relative to its folder."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Quantization:
    """How the weights of one graph were quantized."""

    scheme: str
    """For people, e.g. 'weight-only int8, symmetric, block 64 along K (MatMulNBits, accuracy_level 4)'."""
    quantized: int
    """Number of weight tensors that changed their type."""
    kept: tuple[str, ...] = ()
    """Weights that stayed in floating point, with the reason."""
    calibration: str | None = None
    """Name and SHA-256 of the calibration data; None when none was needed."""


@dataclass(frozen=True)
class Graph:
    """One ONNX file with its weights."""

    model: FileFact
    precision: str
    opset: int
    inputs: tuple[TensorFact, ...]
    outputs: tuple[TensorFact, ...]
    external: tuple[FileFact, ...] = ()
    quantization: Quantization | None = None
    work: Work | None = None
    """Operations and bytes of a call; None in artifacts of before."""

    @property
    def bytes(self) -> int:
        """Size on disk of the graph and its weights."""
        return self.model.bytes + sum(f.bytes for f in self.external)


@dataclass(frozen=True)
class ImageTokens:
    """How a picture stands in the prompt: as copies of one token, whose embeddings are its features."""

    token: str
    id: int
    per_tile: int
    """How many copies one tile of pixels takes."""
    tile_suffix: str = ""
    """Text behind the image tokens of each tile; '{tile}' is its number from 0. Empty for LLaVA-1.5."""
    newline_id: int | None = None
    """LLaVA-NeXT: an id behind the tokenizer's, whose embedding ends each row of the picture's unpadded grid."""


@dataclass(frozen=True)
class Text:
    """Tokens and prompts of a language model."""

    tokenizer: FileFact
    chat_template: str
    """Jinja2; rendered with `messages`, `add_generation_prompt`, `bos_token`, `eos_token`."""
    images: ImageTokens | None
    """How pictures stand in the prompt; None for a model of text alone."""
    bos_token: str
    eos_token: str
    eos_token_ids: tuple[int, ...]
    vocab_size: int
    context_length: int
    prompt_style: str
    max_new_tokens: int


@dataclass(frozen=True)
class TextInput:
    """What a classifier of text reads: token ids and a mask of ones, one text at a time."""

    tokenizer: FileFact
    longest: int
    """Tokens; what is longer is cut off behind."""


@dataclass(frozen=True)
class Decoder:
    """Shape of the decoder's KV cache."""

    layers: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    cache_dtype: str
    in_place: bool = False
    """Whether past and present may be one buffer, longer than what it holds (GroupQueryAttention)."""
    prefill: str = ""
    """How a prompt is computed, by which choice, and how far it agrees with the checkpoint."""


@dataclass(frozen=True)
class ParityRow:
    """One graph, or the whole answer, against its source on fixed inputs."""

    what: str
    against: str
    inputs: str
    max_abs_difference: float
    relative_rms: float
    """Root mean square of the difference over that of the reference."""
    top1_agreement: float | None
    """Fraction of positions (or images) with the same top-1; None where there is no argmax."""
    positions: int
    kl: float | None = None
    """Mean Kullback-Leibler divergence of the next token's distribution, in nats; None where there is none."""
    perplexity: float | None = None
    """exp of the mean negative log-likelihood of a fixed text; None where there is no text."""
    reference_perplexity: float | None = None


@dataclass(frozen=True)
class Parity:
    """Agreement measured at export, with the bounds it had to keep. `None` as a bound: none was stated."""

    rows: tuple[ParityRow, ...]
    max_abs_bound: float | None
    relative_rms_bound: float | None
    top1_bound: float | None
    kl_bound: float | None = None
    perplexity_bound: float | None = None
    """Of perplexity over the reference's."""


@dataclass(frozen=True)
class Source:
    """The checkpoint that was exported."""

    name: str
    sha256: str
    """SHA-256 over the names and SHA-256 of all its weight files."""
    files: dict[str, str] = field(default_factory=dict)
    parameters: int | None = None


@dataclass(frozen=True)
class Manifest:
    """The whole of an artifact."""

    format: str
    name: str
    family: Family
    dialect: Literal["ort", "portable"]
    precision: str
    graphs: dict[str, Graph]
    """classifier, encoder, text_classifier, image_text_classifier: 'classifier'. llava, llava_next: 'vision' (tower + projector), 'embed' and 'decoder'.
    language: 'decoder', from token ids."""
    preprocess: Preprocess | None
    """None for a model of text alone."""
    source: Source
    parity: Parity | None
    tools: dict[str, str]
    created: str
    labels: tuple[str, ...] = ()
    """classifier: the order of what its output ranks, here ('real', 'forged') for one P(forged)."""
    output: Literal["probability", "logits"] = "probability"
    """classifier: what the graph gives. probability: P(forged), [N]. logits: [N, labels], and `forged` says which of
    them add up to P(forged); `edgebench.forged` does it."""
    forged: tuple[int, ...] = ()
    """classifier of logits: the places in `labels` that mean forged; none where the only label means real."""
    text: Text | None = None
    text_input: TextInput | None = None
    """text_classifier, image_text_classifier: what it reads."""
    decoder: Decoder | None = None
    companions: tuple[FileFact, ...] = ()
    """Files for other runtimes, such as onnxruntime-genai's genai_config.json."""
    note: str = ""

    def __post_init__(self) -> None:
        if self.output == "logits":
            places, several = set(self.forged), len(self.labels) > 1
            if not self.labels or not places <= set(range(len(self.labels))):
                raise ValueError("'forged' should be places in 'labels'")
            if several and not 0 < len(places) < len(self.labels):
                raise ValueError("some of 'labels', and not all, should mean forged")

    @property
    def kind(self) -> Kind:
        """What it can be asked, whichever family it is of."""
        if "classifier" in self.graphs:
            if self.text_input is not None:
                return "text-classifier" if self.preprocess is None else "image-text-classifier"
            return "classifier"
        return "vision-language" if "vision" in self.graphs else "language"

    @property
    def bytes(self) -> int:
        """Size on disk of all graphs, weights and the tokenizer. A weight file shared by graphs counts once."""
        return sum({f.file: f.bytes for f in self.files() if f not in self.companions}.values())

    def files(self) -> list[FileFact]:
        """Every file that the manifest vouches for."""
        found = [f for g in self.graphs.values() for f in (g.model, *g.external)]
        found += [t.tokenizer for t in (self.text, self.text_input) if t is not None]
        return [*found, *self.companions]


@dataclass(frozen=True)
class Artifact:
    """A folder with a manifest."""

    folder: Path
    manifest: Manifest
    manifest_sha256: str

    def path(self, fact: FileFact) -> Path:
        """Where a file of the manifest lies; never outside the folder."""
        return inside(self.folder, fact.file)


def inside(folder: Path, name: str) -> Path:
    """`folder / name`, refused when it would leave the folder.

    Raises:
        ArtifactError: the name escapes.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ArtifactError(f"names a file outside its folder: {name!r}", where=folder)
    return path


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def file_fact(folder: Path, name: str) -> FileFact:
    """Size and SHA-256 of a file in an artifact's folder."""
    path = folder / name
    return FileFact(file=name, bytes=path.stat().st_size, sha256=sha256_file(path))


def write_manifest(folder: Path, manifest: Manifest) -> Path:
    """Write `manifest.json` atomically, after everything else has reached the disk."""
    for fact in manifest.files():
        with inside(folder, fact.file).open("rb") as stream:
            os.fsync(stream.fileno())
    path = folder / MANIFEST
    partial = folder / (MANIFEST + ".partial")
    with partial.open("w", encoding="utf-8") as stream:
        json.dump(dataclasses.asdict(manifest), stream, indent=1, ensure_ascii=False)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
    return path


def read_artifact(folder: Path, *, verify: bool = True) -> Artifact:
    """Open an artifact.

    Args:
        folder: what `edgebench export` wrote.
        verify: check that every file is there with its size and SHA-256.

    Raises:
        ArtifactError: no manifest (an unfinished export), another format, or a file that is not the one exported.
    """
    path = folder / MANIFEST
    try:
        raw = path.read_bytes()
    except OSError as error:
        hint = "an unfinished export has none; export again" if folder.is_dir() else "run `edgebench export` first"
        raise ArtifactError("has no readable manifest.json", where=folder, hint=hint) from error
    try:
        value: Any = json.loads(raw)
    except ValueError as error:
        raise ArtifactError("is not JSON", where=path, hint="export again") from error
    if isinstance(value, dict) and value.get("format") != FORMAT:
        raise ArtifactError(
            f"format {value.get('format')!r} is not {FORMAT!r}", where=path, hint="export again with this version"
        )
    manifest = build(Manifest, value, where=str(path), error=ArtifactError)
    if verify:
        for fact in manifest.files():
            file = inside(folder, fact.file)
            if not file.is_file():
                raise ArtifactError("is named in the manifest and missing", where=file, hint="export again")
            if file.stat().st_size != fact.bytes or sha256_file(file) != fact.sha256:
                raise ArtifactError("is not the file that was exported", where=file, hint="export again")
    return Artifact(folder=folder, manifest=manifest, manifest_sha256=hashlib.sha256(raw).hexdigest())


def is_artifact(folder: Path) -> bool:
    """Whether a folder holds a finished export."""
    return (folder / MANIFEST).is_file()
