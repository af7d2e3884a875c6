"""Family language: Llama and Qwen2 decoders of text alone, from a Hugging Face folder or one GGUF file -> one graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgebench.checkpoints.files import copy_tokenizer, identify, read_json, source_of
from edgebench.checkpoints.quiet import quiet
from edgebench.checkpoints.reference import load_reference
from edgebench.errors import CheckpointError, one_line
from edgebench.export.decoder import Language, facts_of, stored_embedding, trace_decoder
from edgebench.export.empty import empty_model_of, source_names
from edgebench.export.genai import write_genai
from edgebench.export.gguf_weights import GgufWeights, config_of_gguf, write_tokenizer_of_gguf
from edgebench.export.initializers import write_graphs
from edgebench.export.language_parity import parity_rows, reference_windows
from edgebench.export.manifests import manifest_of
from edgebench.export.precision import parts_of, prefill_statement
from edgebench.export.request import checked, skipped
from edgebench.export.shards import Shards
from edgebench.export.text import Speech, speech_of, text_of, token_ids
from edgebench.manifest import file_fact

if TYPE_CHECKING:
    from pathlib import Path

    from edgebench.export.request import ExportRequest
    from edgebench.manifest import FileFact, Manifest, Source

MODEL_TYPES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "mistral": "MistralForCausalLM"}
"""Of config.json -> class in transformers."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder, or one GGUF file."""

    path: Path

    @property
    def is_gguf(self) -> bool:
        """Whether it is one file."""
        return self.path.is_file()

    def config(self) -> Any:
        """Transformers' configuration.

        Raises:
            CheckpointError: there is none, or it is another architecture's.
        """
        import transformers

        if self.is_gguf:
            return config_of_gguf(self.path)
        config = read_json(self.path, "config.json")
        if config is None:
            hint = "--weights takes a Hugging Face checkpoint folder or a GGUF file"
            raise CheckpointError("has no config.json", where=self.path, hint=hint)
        if config.get("model_type") not in MODEL_TYPES:
            raise CheckpointError(
                f"is a {config.get('model_type')!r}, not one of {', '.join(MODEL_TYPES)}",
                where=self.path / "config.json",
            )
        try:
            with quiet():
                return transformers.AutoConfig.for_model(**config)
        except Exception as error:  # transformers raises many kinds
            raise CheckpointError(f"is no configuration: {one_line(error)}", where=self.path / "config.json") from error

    def weights(self) -> Any:
        """Its tensors; a context manager."""
        return GgufWeights(self.path) if self.is_gguf else Shards(self.path)

    def speech(self, target: Path, config: Any) -> tuple[FileFact, Speech]:
        """The tokenizer, copied, and how the checkpoint speaks."""
        if not self.is_gguf:
            return copy_tokenizer(self.path, target), speech_of(self.path, config)
        tokenizer = write_tokenizer_of_gguf(self.path, target)
        eos = tokenizer.eos_token_id if config.eos_token_id is None else config.eos_token_id
        speech = Speech(
            tokenizer.chat_template, str(tokenizer.bos_token or ""), str(tokenizer.eos_token or ""), token_ids(eos)
        )
        return file_fact(target, "tokenizer.json"), speech

    def reference(self) -> Any:
        """The checkpoint in transformers, eager, float32."""
        model_class = model_class_of(self.config(), self.path)
        if self.is_gguf:
            rest: dict[str, Any] = {"gguf_file": self.path.name, "use_safetensors": None}
            return load_reference(self.path.parent, model_class, **rest)
        return load_reference(self.path, model_class)

    def source(self, parameters: int | None) -> Source:
        """The identity of its weights."""
        name = self.path.resolve().name
        if self.is_gguf:
            return source_of([self.path], name=name, parameters=parameters)
        return identify(self.path, parameters=parameters, name=name)


def model_class_of(config: Any, where: Path) -> str:
    """Class in transformers of a configuration.

    Raises:
        CheckpointError: it is of another architecture.
    """
    found = MODEL_TYPES.get(config.model_type)
    if found is None:
        raise CheckpointError(f"is a {config.model_type!r}, not one of {', '.join(MODEL_TYPES)}", where=where)
    return found


def export_language(request: ExportRequest) -> Manifest:
    """Write the graph and the tokenizer, and measure parity with the checkpoint where it fits into memory.

    In the dialect 'ort' the folder can be loaded by onnxruntime-genai as it is.

    Raises:
        CheckpointError: the checkpoint is not one, or is damaged.
        ParityError: the graph misses the recipe's bound.
    """
    import transformers

    checkpoint = Checkpoint(request.weights)
    config = checkpoint.config()
    model_class = model_class_of(config, request.weights)
    parts = parts_of(request.precision, request.recipe.precisions, request.recipe.name)
    request.say("reading the checkpoint's headers")
    with checkpoint.weights() as weights:
        tokenizer, speech = checkpoint.speech(request.folder, config)
        text = text_of(speech, tokenizer, request.recipe, config, None)
        decoder = facts_of(config, cache_dtype=parts.decoder_float, in_place=request.dialect == "ort")
        model = empty_model_of(request.weights, getattr(transformers, model_class), config, parts.decoder_float)
        sources = source_names(model, weights)
        parameters = sum(weights.tensors[key].count for key in set(sources.values()))
        by_id = {id(p): sources[n] for n, p in model.named_parameters(remove_duplicate=False)}
        language = Language(model.model, model.lm_head, by_id)
        request.say("tracing decoder")
        embedding = stored_embedding(parts.embed, weights, language.source("embed_tokens.weight"))
        traced = trace_decoder(
            language, weights, parts, request.dialect, embedding, request.folder / tokenizer.file, request.say
        )
        graphs = write_graphs({"decoder": (traced, parts.decoder)}, weights, request.folder, request.say, request.wrote)
    del model, language
    parity, note = None, skipped(request, parameters)
    if note is None:
        request.say("asking the checkpoint")
        windows = reference_windows(checkpoint.reference(), request.folder / tokenizer.file)
        request.say("comparing with the checkpoint")
        rows = parity_rows(request.folder, graphs["decoder"], decoder, windows)
        parity = checked(rows, request.recipe.bound(request.precision))
    request.say("hashing the checkpoint")
    return manifest_of(
        request,
        graphs=graphs,
        preprocess=None,
        source=checkpoint.source(parameters),
        parity=parity,
        text=text,
        decoder=replace(decoder, prefill=prefill_statement(parts, request.precision, request.dialect, parity)),
        companions=write_genai(request.folder, config, text, decoder) if request.dialect == "ort" else (),
        note=note or "",
    )
