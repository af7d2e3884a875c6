"""Stage B: projector and language decoder learn to answer from the frozen tower's tokens.

Besides the answer they learn small judgements on the way: is this frame forged, is this mask the one, is this
number right, is this option right (its line end predicts the option's own letter, which the answer then copies).
During the first part the tower's verdict is sharpened towards the truth, less and less, so that the decoder learns
to put verdicts together before it has to live with weak ones.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tower import VISION, features, fractions
from transformers import LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
from vocabulary import NUMBERS, SIZE, TOKENS_PER_TILE, Encoder, Prompt, new_tokenizer

from edgebench.demo import questions
from edgebench.demo.scenes import PLACES, Sample, caption

if TYPE_CHECKING:
    from edgebench.demo.questions import Draft

HIDDEN, LAYERS = 128, 5
TASKS = {"category": (0.16, 32), "text": (0.06, 24), "video": (0.06, 12), "seg": (0.12, 12), "sets": (0.02, 3),
         "det": (0.10, 32), "part": (0.06, 24), "temporal": (0.42, 10)}  # fmt: skip
"""Share of the steps and questions a step."""
BOOST = 6.0


def new_model(tower: Any, heads: Any, sample: Tensor, tokenizer: Any, seed: int) -> Any:
    """A LLaVA around the tower.

    Args:
        tower: stage A's.
        heads: stage A's.
        sample: tokens [N, 37, 256] of training tiles, to scale the projector.
        tokenizer: the demo's.
        seed: of the weights.
    """
    torch.manual_seed(seed)
    text = LlamaConfig(
        vocab_size=SIZE, hidden_size=HIDDEN, intermediate_size=352, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=2048, tie_word_embeddings=True,
        bos_token_id=tokenizer.token_to_id("<s>"), eos_token_id=tokenizer.token_to_id("</s>"),
        pad_token_id=tokenizer.token_to_id("<pad>"),
    )  # fmt: skip
    config = LlavaConfig(
        vision_config=VISION, text_config=text, image_token_index=tokenizer.token_to_id("<image>"),
        vision_feature_layer=-1, vision_feature_select_strategy="full", image_seq_length=TOKENS_PER_TILE,
        tie_word_embeddings=True,
    )  # fmt: skip
    model: Any = LlavaForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    with torch.no_grad():
        model.model.vision_tower.load_state_dict(tower.state_dict())
        for name, weight in model.model.language_model.named_parameters():
            if name.endswith("proj.weight"):
                weight.normal_(0, weight.shape[1] ** -0.5)
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    weight.div_(math.sqrt(2 * LAYERS))
        words = model.model.language_model.embed_tokens.weight
        words.normal_(0, 0.25)
        first = tokenizer.token_to_id("0")
        waves = torch.arange(NUMBERS)[:, None] * (2 * math.pi / torch.logspace(0.5, 2.6, 16))[None]
        words[first : first + NUMBERS, :32] = 0.35 * torch.cat([waves.sin(), waves.cos()], 1)
        _start_projector(model.model.multi_modal_projector, heads, sample)
    model.model.vision_tower.requires_grad_(False)
    return model


def _start_projector(projector: Any, heads: Any, sample: Tensor) -> None:
    flat = sample[:, 1:].flatten(0, 1)
    names = ("forged", "white", "patch_kind", "row", "column", "words")
    rows = torch.cat([heads.maps[name].weight for name in names])
    rows = torch.cat([rows, heads.maps["kind"].weight[:1]])
    biases = torch.cat([heads.maps[name].bias for name in names] + [heads.maps["kind"].bias[:1]])
    values = flat @ rows.T + biases
    rows, biases = rows / values.std(0)[:, None], (biases - values.mean(0)) / values.std(0)
    centred = flat - flat.mean(0)
    _, vectors = torch.linalg.eigh(centred.T @ centred / len(flat))
    rest = HIDDEN - 2 * len(rows)
    main = vectors.T.flip(0)[:rest]
    spread = (centred @ main.T).std(0)
    main = main / spread[:, None]
    projector.linear_1.weight.copy_(torch.cat([rows, -rows, main]))
    projector.linear_1.bias.copy_(torch.cat([biases, -biases, -(main @ flat.mean(0))]))
    nn.init.orthogonal_(projector.linear_2.weight)
    projector.linear_2.bias.zero_()


class Asker:
    """Draws training questions from the banks."""

    def __init__(self, bank: dict[str, np.ndarray], tiles: int, seed: int) -> None:
        self.bank, self.rng = bank, np.random.default_rng((seed, 21))
        kinds = bank["kinds"][:tiles]
        area = bank["masks"][:tiles].mean(axis=(1, 2))
        every = np.arange(tiles)
        self.real, self.forged = every[kinds == 0], every[kinds > 0]
        self.local = every[(kinds > 0) & (area < 0.6) & (area > 0.02)]
        clear = np.isin(kinds, [3, 4, 5, 6, 7, 8, 9])
        self.clear = every[clear & (area < 0.6) & (area > 0.02)]
        flags = bank["clip_forged"]
        clips = np.arange(len(flags))
        clip_area = bank["clip_masks"].mean(axis=(1, 2))
        self.clips = clips[~flags.all(1) & flags.any(1)]
        self.clips_real, self.clips_forged = clips[~flags.any(1)], clips[flags.all(1)]
        self.clips_local = clips[flags.all(1) & (clip_area < 0.6) & (clip_area > 0.02)]

    def tile(self, k: int) -> Sample:
        """A picture of the bank."""
        mask, kind = self.bank["masks"][k], int(self.bank["kinds"][k])
        said = tuple(int(v) for v in self.bank["words"][k])
        return Sample(self.bank["tiles"][k][None], mask, (kind > 0,), str(kind), "", said)  # type: ignore[arg-type]

    def clip(self, k: int, frames: slice) -> Sample:
        """Some frames of a clip of the bank."""
        flags = tuple(bool(v) for v in self.bank["clip_forged"][k][frames])
        mask, kind = self.bank["clip_masks"][k], str(self.bank["clip_kinds"][k])
        return Sample(self.bank["clip_tiles"][k][frames], mask, flags, kind, "", (0, 0, 0))

    def __call__(self, task: str, early: bool) -> tuple[Draft, np.ndarray, tuple[int, ...]]:
        """A question, the rows of its frames in the feature table (negative: clips), and the caption's lies."""
        rng = self.rng
        position, coin = int(rng.integers(4)), bool(rng.random() < 0.5)
        if task in {"category", "text", "seg", "det", "part"}:
            local = self.clear if early else self.local
            if task == "category":
                k = int(rng.choice(self.forged if coin else self.real))
            elif task in {"text", "part"}:
                k = int(rng.choice((self.forged if task == "text" else local) if coin else self.real))
            else:
                k = int(rng.choice(local if rng.random() < 0.75 else self.real))
            sample, rows = self.tile(k), np.array([k])
            words, lies = caption(sample.attributes), ()
            if task in {"text", "part"} and rng.random() < (0.5 if task == "part" else 0.35):
                words, lies = questions.lie(sample.attributes, rng, swap=bool(rng.random() < 0.5))
            if task == "category":
                return questions.binary(sample, rng, position % 2, generated=bool(rng.random() < 0.4)), rows, ()
            if task == "text":
                return questions.binary(sample, rng, position % 2, generated=False, words=words), rows, lies
            if task == "seg":
                return questions.masks(sample, rng, position), rows, ()
            if task == "part":
                return questions.which_part(sample, rng, position, words, lies), rows, lies
            if rng.random() < 0.4:
                return questions.boxes(sample, rng, position), rows, ()
            return questions.boxes(sample, rng, position, words=words), rows, ()
        if task == "temporal":
            k = int(rng.choice(self.clips if rng.random() < 0.75 else self.clips_real))
            return questions.temporal(self.clip(k, slice(0, 8)), rng, position), -1 - (k * 8 + np.arange(8)), ()
        start = int(rng.integers(0, 5))
        pool = self.clips_local if task == "sets" else self.clips_forged
        k = int(rng.choice(pool if rng.random() < (0.75 if task == "sets" else 0.5) else self.clips_real))
        sample, rows = self.clip(k, slice(start, start + 4)), -1 - (k * 8 + start + np.arange(4))
        if task == "sets":
            return questions.masks(sample, rng, position), rows, ()
        return questions.binary(sample, rng, position % 2, generated=coin), rows, ()


def judgements(
    encoder: Encoder, draft: Draft, prompt: Prompt, lies: tuple[int, ...], rng: np.random.Generator
) -> list[tuple[int, int, float]]:
    """What else to predict where: position, token, weight."""
    yes, no = encoder.yes, encoder.no
    sample, frames = draft.sample, len(draft.sample.frames)
    out: list[tuple[int, int, float]] = []
    for k, place in enumerate(prompt.tiles):
        right = sample.forged[k] if k < frames else (k - frames) // frames == draft.answer
        out.append((place, yes if right else no, 1.0))
    for k, place in enumerate(prompt.ends):
        out.append((place, encoder.letters[k] if k == draft.answer else no, 4.0))
    box = sample.box
    for place, _option, slot, value in prompt.numbers:
        if draft.task == "temporal":
            out.append((place, yes if sample.forged[value] else no, 1.5))
        elif draft.task == "det":
            area = draft.options[_option].count(",") - draft.options[_option].partition('"forged text"')[2].count(",")
            if slot < 4 and area >= 3:
                near = box is not None and abs(box[slot] - value) <= 8
                out.append((place, yes if near else no, 0.5))
    for place, which in prompt.words:
        out.append((place, yes if PLACES[which] in lies else no, 0.5))
    white = [fractions(m[None])[0] > 0.5 for m in draft.candidates]
    truth = fractions(sample.mask[None])[0] > 0.5
    for k, place in enumerate(prompt.tiles):
        first = place - TOKENS_PER_TILE + 1
        if k < frames:
            bits = truth & bool(sample.forged[k])
        else:
            bits = white[(k - frames) // frames] == (truth & sample.is_forged)
        for p in rng.choice(36, 12, replace=False):
            out.append((first + int(p), yes if bits[p] else no, 0.25))
    return out


class Batch:
    """Questions of one task as tensors."""

    def __init__(
        self, encoder: Encoder, asked: list[tuple[Draft, np.ndarray, tuple[int, ...]]], rng: np.random.Generator
    ) -> None:
        prompts = [encoder(draft) for draft, _, _ in asked]
        length = max(len(p.ids) for p in prompts) + 1
        self.ids = torch.zeros(len(asked), length, dtype=torch.long)
        marks: list[tuple[int, int, int, float]] = []
        ends: list[tuple[int, int]] = []
        for row, ((draft, _, lies), prompt) in enumerate(zip(asked, prompts, strict=True)):
            answer = encoder.letters[draft.answer]
            self.ids[row, : len(prompt.ids) + 1] = torch.tensor([*prompt.ids, answer])
            ends.append((len(prompt.ids) - 1, answer))
            marks += [(row, *mark) for mark in judgements(encoder, draft, prompt, lies, rng)]
        self.rows = torch.tensor([m[0] for m in marks])
        self.places = torch.tensor([m[1] for m in marks])
        self.targets = torch.tensor([m[2] for m in marks])
        self.weights = torch.tensor([m[3] for m in marks])
        self.ends = torch.tensor([e[0] for e in ends])
        self.answers = torch.tensor([e[1] for e in ends])


def train_decoder(
    tower: Any, heads: Any, bank: dict[str, np.ndarray], *, seed: int, steps: int, tiles: int = 16_000
) -> tuple[Any, Any]:
    """Stage B.

    Args:
        tower: stage A's, frozen here.
        heads: stage A's.
        bank: see `banks`.
        seed: of weights and questions.
        steps: batches of one task each.
        tiles: how many pictures of the bank to use.

    Returns:
        (model, tokenizer).
    """
    tokenizer = new_tokenizer()
    encoder = Encoder(tokenizer)
    single = features(tower, bank["tiles"][:tiles]).half()
    clips = features(tower, bank["clip_tiles"].reshape(-1, 96, 96, 3)).half()
    model = new_model(tower, heads, single[:600].float(), tokenizer, seed)
    asker = Asker(bank, tiles, seed)
    rng = np.random.default_rng((seed, 22))
    verdict = heads.maps["forged"].weight[0].detach()
    direction = verdict / verdict.square().sum()
    names = list(TASKS)
    plan = rng.choice(len(names), steps, p=[TASKS[n][0] / sum(v[0] for v in TASKS.values()) for n in names])
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=1.5e-3, betas=(0.9, 0.98), weight_decay=0.03, fused=True)
    helper_ids = torch.tensor([encoder.yes, encoder.no, *encoder.letters])
    lookup = torch.full((SIZE,), -1)
    lookup[helper_ids] = torch.arange(len(helper_ids))
    scores: dict[str, list[float]] = {name: [] for name in names}
    model.train()
    started = time.monotonic()
    for step in range(steps):
        name = names[int(plan[step])]
        done = step / steps
        boost = BOOST * max(0.0, 1 - done / 0.5)
        asked = [asker(name, done < 0.3) for _ in range(TASKS[name][1])]
        batch = Batch(encoder, asked, rng)
        pictures = _pictures(tower, asked, single, clips, direction * boost)
        language = model.model.language_model
        embeds = language.embed_tokens(batch.ids)
        projected = model.model.multi_modal_projector(pictures)
        embeds = embeds.masked_scatter((batch.ids == encoder.image)[..., None], projected.reshape(-1, HIDDEN))
        hidden = language(inputs_embeds=embeds, use_cache=False).last_hidden_state
        count = torch.arange(len(asked))
        loss = F.cross_entropy(model.lm_head(hidden[count, batch.ends]), batch.answers)
        said = model.lm_head(hidden[count, batch.ends])[:, encoder.letters].argmax(1)
        scores[name].append(float((torch.tensor(encoder.letters)[said] == batch.answers).float().mean()))
        stop = torch.full((len(asked),), encoder.stop)
        loss = loss + 0.1 * F.cross_entropy(model.lm_head(hidden[count, batch.ends + 1]), stop)
        logits = model.lm_head(hidden[batch.rows, batch.places])[:, helper_ids]
        each = F.cross_entropy(logits, lookup[batch.targets], reduction="none")
        loss = loss + (each * batch.weights).sum() / batch.weights.sum()
        rate = 1.5e-3 * min(1, (step + 1) / 60) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        if step % 50 == 0:
            recent = " ".join(f"{k} {np.mean(v[-12:]):.2f}" for k, v in scores.items() if v)
            print(
                f"B {step}/{steps} loss {float(loss.detach()):.3f} {recent} {time.monotonic() - started:.0f} s",
                flush=True,
            )
    return model.eval(), tokenizer


def _pictures(tower: Any, asked: list[Any], single: Tensor, clips: Tensor, push: Tensor) -> Tensor:
    """Tokens [tiles, 37, 256] of all tiles of a batch, the frames' pushed towards the truth."""
    white = [
        np.where(m[..., None], np.uint8(255), np.uint8(0)).repeat(3, 2)
        for draft, _, _ in asked
        for m in draft.candidates
    ]
    masks = features(tower, np.stack(white)) if white else None
    parts: list[Tensor] = []
    seen = 0
    for draft, rows, _ in asked:
        table = single[rows] if rows[0] >= 0 else clips[-1 - rows]
        frames = table.float()
        share = fractions(draft.sample.mask[None])[0] * 2 - 1
        flags = torch.tensor(draft.sample.forged)[:, None]
        sign = torch.where(flags, share, -1.0)
        frames[:, 1:] += sign[..., None] * push
        parts.append(frames)
        for _ in draft.candidates:
            parts.append(masks[seen : seen + 1].expand(len(frames), -1, -1))  # type: ignore[index]
            seen += 1
    return torch.cat(parts)
