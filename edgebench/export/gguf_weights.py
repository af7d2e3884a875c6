"""A language model in one GGUF file: its configuration, its tokenizer, and its weights by transformers' names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.checkpoints.quiet import quiet
from edgebench.errors import CheckpointError, one_line
from edgebench.export.shards import CHUNK_BYTES

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

_TURNED = ("self_attn.q_proj.weight", "self_attn.k_proj.weight")
"""Llama's rows of these are stored in another order, for another form of the rotation."""
_MODULES = (
    "model.embed_tokens",
    "model.norm",
    "lm_head",
    *(
        f"model.layers.{{}}.{name}"
        for name in (
            "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
            "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
        )
    ),
)  # fmt: skip


@dataclass(frozen=True)
class GgufTensor:
    """One tensor of the file."""

    raw: Any
    kind: str
    """Its type in the file, such as Q4_1."""
    shape: tuple[int, ...]
    heads: int | None
    """Of a weight whose rows are turned."""

    @property
    def count(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape, dtype=np.int64))


class GgufWeights:
    """All tensors of a GGUF file, dequantized as they are read."""

    def __init__(self, file: Path) -> None:
        """Read the header.

        Raises:
            CheckpointError: it is no GGUF file, or of an architecture without a form here.
        """
        import gguf

        self.folder = file
        try:
            self._reader: Any = gguf.GGUFReader(str(file))
        except Exception as error:  # the reader raises many kinds
            raise CheckpointError(f"is no GGUF file, or a truncated one: {one_line(error)}", where=file) from error
        architecture = str(self.field("general.architecture"))
        arch = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2}.get(architecture)
        if arch is None:
            raise CheckpointError(
                f"is a {architecture!r}", where=file, hint="GGUF files of Llama and Qwen2 models are read here"
            )
        layers = int(self.field(f"{architecture}.block_count"))
        names: dict[str, str] = {}
        table = gguf.get_tensor_name_map(arch, layers)
        for module in _MODULES:
            for layer in range(layers) if "{}" in module else range(1):
                ours = module.format(layer)
                names[str(table.get_name(ours))] = ours
        heads = {
            _TURNED[0]: int(self.field(f"{architecture}.attention.head_count")),
            _TURNED[1]: int(self.field(f"{architecture}.attention.head_count_kv")),
        }
        self.tensors: dict[str, GgufTensor] = {}
        for raw in self._reader.tensors:
            stem, _, kind = raw.name.rpartition(".")
            if stem == "rope_freqs":
                continue
            if stem not in names:
                raise CheckpointError(f"holds {raw.name!r}, which has no place here", where=file)
            name = f"{names[stem]}.{kind}"
            turned = heads.get(name.split(".", 3)[-1]) if architecture == "llama" else None
            shape = tuple(int(d) for d in reversed(raw.shape))
            self.tensors[name] = GgufTensor(raw, raw.tensor_type.name, shape, turned)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._reader

    def field(self, name: str) -> Any:
        """One entry of the header.

        Raises:
            CheckpointError: there is none of that name.
        """
        found = self._reader.fields.get(name)
        if found is None:
            raise CheckpointError(f"has no {name!r}", where=self.folder)
        return found.contents()

    def read(self, name: str, begin: int = 0, end: int | None = None) -> NDArray[np.float32]:
        """Rows [begin, end) of a tensor as float32.

        Raises:
            CheckpointError: its type has no form here.
        """
        import gguf

        tensor = self.tensors[name]
        try:
            if tensor.heads is not None:
                whole = gguf.dequantize(tensor.raw.data, tensor.raw.tensor_type).astype(np.float32, copy=False)
                rows, columns = tensor.shape
                halves = whole.reshape(tensor.heads, rows // tensor.heads // 2, 2, columns)
                turned: NDArray[np.float32] = halves.swapaxes(1, 2).reshape(rows, columns)
                return turned[begin:end]
            part = gguf.dequantize(tensor.raw.data[begin:end], tensor.raw.tensor_type)
        except NotImplementedError as error:
            raise CheckpointError(f"{name!r} is {tensor.kind}, which has no form here", where=self.folder) from error
        rest = tensor.shape[1:]
        found: NDArray[np.float32] = part.astype(np.float32, copy=False).reshape(-1, *rest)
        return found

    def rows_at_a_time(self, name: str) -> int:
        """How many rows make about CHUNK_BYTES as float32."""
        tensor = self.tensors[name]
        if tensor.heads is not None:
            return tensor.shape[0]
        return max(1, CHUNK_BYTES // max(1, 4 * tensor.count // max(1, tensor.shape[0])))


def config_of_gguf(file: Path) -> Any:
    """Transformers' configuration of the model.

    Raises:
        CheckpointError: transformers does not read it.
    """
    import transformers

    try:
        with quiet():
            return transformers.AutoConfig.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"has no readable configuration: {one_line(error)}", where=file) from error


def write_tokenizer_of_gguf(file: Path, target: Path) -> Any:
    """Write `tokenizer.json` of the file's tokenizer, and return transformers' tokenizer.

    Raises:
        CheckpointError: transformers does not read it.
    """
    import transformers

    try:
        with quiet():
            kind: Any = transformers.AutoTokenizer
            tokenizer = kind.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
            tokenizer.backend_tokenizer.save(str(target / "tokenizer.json"))
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"has no readable tokenizer: {one_line(error)}", where=file) from error
    return tokenizer
