"""Models in processes of their own, each asked one question at a time: edgebench's artifacts, and transformers.

Timed, from the bytes of the picture: preprocess (decoding, image processor, prompt, tokens), vision, prefill (ends with
the logits of the first token), decode. transformers is asked by its own modules and its own cache, which is faster than
its `generate`; the tokens are compared with those of `generate`.
"""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import time
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.benches.base import Image, Question
from edgebench.environment import peak_memory_bytes
from edgebench.errors import EdgebenchError, EngineError, UsageError
from edgebench.manifest import read_artifact

if TYPE_CHECKING:
    from pathlib import Path

STAGES = ("preprocess", "vision", "prefill", "decode")
QUESTION = Question(
    "What is the authenticity of the image?",
    {"A": "AI-generated", "B": "non AI-generated", "C": "edited with a brush", "D": "cannot be told"},
)


@dataclass
class Asked:
    """One question's answer by one variant."""

    stages_ns: dict[str, int]
    tokens: list[int]
    """Greedy, the end token included."""
    probabilities: dict[str, float]
    """Of each option's letter as the first token."""
    prompt: list[int]
    pixels: str
    """SHA-256 of the float32 pixels that went into the model."""
    peak_bytes: int | None
    cpu_ns: int
    """Of all threads of the process, from the bytes to the last token; waiting for a busy core is no part of it."""
    as_generate: bool | None = None
    """transformers: whether its own `generate` gave the same tokens; None where it was not asked."""


@dataclass
class Variant:
    """One variant's process and what it answered."""

    name: str
    process: Any
    pipe: Any
    facts: dict[str, Any]
    answers: list[list[Asked]] = field(default_factory=list)
    """By question, by round."""

    def ask(self, data: bytes) -> Asked:
        """One question.

        Raises:
            EngineError: the process failed or ended.
        """
        self.pipe.send(data)
        return _received(self.pipe, self.name)


class _Listening:
    """Stands before an engine and remembers what went in and what came out."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.prompt: Any = None
        self.pixels: Any = None
        self.logits: list[Any] = []

    def see(self, pixels: Any) -> Any:
        self.pixels = pixels
        return self.engine.see(pixels)

    def prefill(self, ids: Any, features: Any, *, keep: int = 0) -> Any:
        self.prompt = ids
        self.logits = [self.engine.prefill(ids, features, keep=keep)]
        return self.logits[0]

    def step(self, token: int) -> Any:
        self.logits.append(self.engine.step(token))
        return self.logits[-1]


def serve_edgebench(pipe: Any, artifact: Path, threads: int, limit: int) -> None:
    """One artifact in ONNX Runtime, asked by edgebench's own runner; answers until the pipe closes."""
    from edgebench.engines.ort import OrtEngine
    from edgebench.media.pixels import in_use
    from edgebench.profiles import load_profile
    from edgebench.runner import HowToAsk, Query, Runner

    opened = read_artifact(artifact)
    text = opened.manifest.text
    if text is None:
        raise UsageError("is no language model", where=artifact)
    how = HowToAsk("generate", text.prompt_style, "lossless", limit)
    with OrtEngine(opened, replace(load_profile("cpu"), threads=threads), {}) as engine:
        listening = _Listening(engine)
        runner = Runner(listening, opened, how)  # type: ignore[arg-type] # the calls that a question needs
        pipe.send({**engine.facts(), "pixels": in_use(), "bytes": opened.manifest.bytes})
        while True:
            data = pipe.recv()
            cpu = time.process_time_ns()
            answer = runner.ask(Query("question", (Image("picture", data),), QUESTION))
            cpu = time.process_time_ns() - cpu
            tokens = [int(logits.argmax()) for logits in listening.logits]
            found = {letter: float(np.exp(value)) for letter, value in (answer.option_logprobs or {}).items()}
            stages = {name: answer.stages_ns[name] for name in STAGES}
            pipe.send(_asked(stages, tokens, found, listening.prompt, listening.pixels, cpu))


def serve_transformers(pipe: Any, artifact: Path, checkpoint: Path, dtype: str, threads: int, limit: int) -> None:
    """The checkpoint in transformers, eager; answers until the pipe closes.

    The artifact lends the prompt style and the options' token ids; nothing else of it is used.
    """
    import PIL.Image
    import torch
    import transformers

    from edgebench.prompts.conversation import Conversation
    from edgebench.prompts.styles import message

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    # Newer versions call the argument `cache`, older ones know only `past_key_values`.
    warnings.filterwarnings("ignore", message=".*past_key_values.*")
    torch.set_num_threads(threads)
    opened = read_artifact(artifact, verify=False)
    text = opened.manifest.text
    if text is None:
        raise UsageError("is no language model", where=artifact)
    conversation = Conversation(text, opened.path(text.tokenizer))
    letters = {letter: conversation.first_ids(letter) for letter in QUESTION.options}
    kind = getattr(torch, dtype)
    model: Any = transformers.LlavaForConditionalGeneration.from_pretrained(
        checkpoint, dtype=kind, attn_implementation="eager", local_files_only=True
    ).eval()
    processor: Any = transformers.AutoProcessor.from_pretrained(checkpoint, local_files_only=True)
    pipe.send({"transformers": transformers.__version__, "torch": torch.__version__, "threads": torch.get_num_threads(),
               "image_processor": type(processor.image_processor).__name__})  # fmt: skip
    clock, alike = time.perf_counter_ns, None
    with torch.inference_mode():
        while True:
            data = pipe.recv()
            begin, cpu = clock(), time.process_time_ns()
            picture = PIL.Image.open(io.BytesIO(data)).convert("RGB")
            prompt = processor.apply_chat_template(message(text.prompt_style, QUESTION, 1), add_generation_prompt=True)
            inputs = processor(images=picture, text=prompt, return_tensors="pt")
            prepared = clock()
            ids = inputs["input_ids"]
            out = model.model.get_image_features(pixel_values=inputs["pixel_values"].to(kind))
            pooled = out.pooler_output if hasattr(out, "pooler_output") else out
            features = torch.cat(list(pooled)) if isinstance(pooled, (list, tuple)) else pooled
            seen = clock()
            embeds = model.get_input_embeddings()(ids)
            places = (ids == model.config.image_token_id)[..., None].expand_as(embeds)
            embeds = embeds.masked_scatter(places, features.to(embeds.dtype))
            out = model.model.language_model(inputs_embeds=embeds, use_cache=True)
            first = model.lm_head(out.last_hidden_state[:, -1:])[0, -1]
            tokens = [int(first.argmax())]
            filled = clock()
            while tokens[-1] not in text.eos_token_ids and len(tokens) < limit:
                out = model.model.language_model(
                    input_ids=torch.tensor([[tokens[-1]]]), past_key_values=out.past_key_values, use_cache=True
                )
                tokens.append(int(model.lm_head(out.last_hidden_state[:, -1:])[0, -1].argmax()))
            end, cpu = clock(), time.process_time_ns() - cpu
            stages = dict(zip(STAGES, (prepared - begin, seen - prepared, filled - seen, end - filled), strict=True))
            shares = torch.softmax(first.double(), -1)
            found = {letter: float(shares[at].sum()) for letter, at in letters.items()}
            pixels = inputs["pixel_values"].float().numpy()
            if alike is None:
                whole = model.generate(**inputs.to(kind), max_new_tokens=limit, do_sample=False)
                alike = whole[0, ids.shape[1] :].tolist() == tokens
            pipe.send(replace(_asked(stages, tokens, found, ids[0].numpy(), pixels, cpu), as_generate=alike))


def _asked(
    stages: dict[str, int], tokens: list[int], found: dict[str, float], prompt: Any, pixels: Any, cpu: int
) -> Asked:
    digest = hashlib.sha256(np.ascontiguousarray(pixels, dtype=np.float32).tobytes()).hexdigest()
    return Asked(stages, tokens, found, [int(i) for i in prompt], digest, peak_memory_bytes()[0], cpu)


def _guarded(serve: Any, pipe: Any, *arguments: Any) -> None:
    try:
        serve(pipe, *arguments)
    except EOFError:
        return
    except EdgebenchError as error:
        pipe.send(error)


def start(name: str, serve: Any, *arguments: Any) -> Variant:
    """A variant in a process of its own, loaded.

    Raises:
        EngineError: it cannot be loaded.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_guarded, args=(serve, theirs, *arguments), daemon=True, name=name)
    process.start()
    theirs.close()
    return Variant(name, process, ours, _received(ours, name))


def _received(pipe: Any, name: str) -> Any:
    try:
        value = pipe.recv()
    except EOFError as error:
        raise EngineError(f"the process of {name!r} ended", hint="its own message stands above") from error
    if isinstance(value, EdgebenchError):
        raise value
    return value
