"""Layout of optimum's text generation: one decoder from token ids, with its cache.

`model.onnx` (or `decoder_model_merged.onnx`, as onnx-community names it), in variants such as `_quantized` or `_q4`,
in the folder itself or in `onnx/`, beside config.json, generation_config.json, tokenizer.json and its settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import read_json
from edgebench.checkpoints.quiet import quiet
from edgebench.errors import CheckpointError, one_line
from edgebench.export.imported.decoders import manifest_of, prompt_of, text_of
from edgebench.export.imported.reading import find, read
from edgebench.manifest import Decoder

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.export.imported.request import ImportRequest
    from edgebench.manifest import Manifest

STEMS = ("model", "decoder_model_merged")


def take(request: ImportRequest) -> Manifest:
    """The manifest of such a folder.

    Raises:
        CheckpointError: a file is missing, damaged, or of another layout.
        UsageError: an option does not fit.
    """
    request.refuse("--forged", "--vision, --embed and --decoder")
    request.expect("language")
    folder = request.folder
    config = config_of(folder)
    request.say("reading the graph")
    path = find(folder, STEMS, request.variant)
    found = read(folder, path, request.variant, inputs={"input_ids"}, outputs={"logits"})
    generation = read_json(folder, "generation_config.json") or {}
    eos = generation.get("eos_token_id")
    try:
        decoder = Decoder(
            layers=config.num_hidden_layers,
            kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            hidden_size=config.hidden_size,
            cache_dtype="float32",
            in_place=found.in_place,
        )
        text = text_of(
            folder,
            prompt_of(request),
            eos=config.eos_token_id if eos is None else eos,
            vocab_size=config.vocab_size,
            context_length=config.max_position_embeddings,
        )
    except AttributeError as error:
        raise CheckpointError(f"states too little: {one_line(error)}", where=folder / "config.json") from error
    return manifest_of(request, found, text, decoder, dialect="ort" if found.fused else "portable")


def config_of(folder: Path) -> Any:
    """The configuration of the language model, as transformers understands it.

    Raises:
        CheckpointError: it is damaged, or of a model that this version of transformers does not know.
    """
    import transformers

    try:
        with quiet():
            config: Any = transformers.AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"is no configuration: {one_line(error)}", where=folder / "config.json") from error
    return config.get_text_config(decoder=True)
