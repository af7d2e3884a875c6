"""The only clock. One question in, one answer with its stage times out.

Timed, per question, in nanoseconds:
- `read`: getting the encoded bytes (disk). Not part of `total`.
- `preprocess`: decoding, geometry, normalising, chat template and tokens.
- `vision`: the vision graph, or a classifier's only graph.
- `prefill`: embedding and reading the prompt; ends with the logits of the first token.
- `decode`: every further token.
- `total`: from the bytes to the last token. `total - decode` is the time to first token (TTFT).

A model that is asked in messages (`edgebench.engines.base.Chat`) shows less of itself. There `preprocess` ends when
the first request is sent, `total` is the wall time of the request that was answered, `ttft` what passed of it until
the first text, `decode` the rest, and `retries` the requests before it and the waits between them.

Not timed: loading, the warm-up, matching the answer, writing the record, and the pipe between the processes.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from edgebench.errors import EngineError, SampleError
from edgebench.media.decode import MAX_PIXELS, decode
from edgebench.media.perturb import perturb
from edgebench.media.pixels import pixels
from edgebench.prompts.captions import CaptionTokens
from edgebench.prompts.conversation import Conversation
from edgebench.prompts.letters import first_logprobs, p_forged, said_logprobs
from edgebench.prompts.placing import check_prompt, chosen, placing
from edgebench.prompts.styles import message
from edgebench.sharing import Shared, same

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from edgebench.benches.base import Image, Question
    from edgebench.engines.base import Chat, Engine
    from edgebench.manifest import Artifact, Text
    from edgebench.media.decode import ImagePath
    from edgebench.media.perturb import Perturbation
    from edgebench.prompts.placing import Placing


@dataclass(frozen=True)
class Query:
    """What the engine's side gets to know of a sample: no label, no category."""

    id: str
    images: tuple[Image, ...]
    question: Question
    warmup: bool = False
    """Nothing of it is reused."""
    fresh: bool = False
    """It takes nothing of the question before."""
    how: HowToAsk | None = None
    """In place of the runner's own, from here on: one of several runs that are asked side by side."""


@dataclass(frozen=True)
class HowToAsk:
    """The settings of a run that the engine's side needs."""

    scoring: Literal["generate", "logits"]
    prompt_style: str
    image_path: ImagePath
    max_new_tokens: int
    perturbation: Perturbation | None = None
    max_pixels: int = MAX_PIXELS
    reuse: bool = False
    """Questions about the pictures of the question before take their features, and the cache of what the two prompts
    begin with. Off, every question is asked as the first one."""
    batch: int | None = None
    """Offline: the most questions in one call of the engine."""


@dataclass(frozen=True)
class Answer:
    """What came back for one query."""

    text: str | None = None
    score: float | None = None
    """P(forged): a classifier's output, or P(yes) / (P(yes) + P(no)) of a yes/no question."""
    option_logprobs: dict[str, float] | None = None
    finish: str | None = None
    stages_ns: dict[str, int] = field(default_factory=dict)
    tiles: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reused_tokens: int | None = None
    """Tokens of the prompt whose cache was there already; None where nothing is reused."""
    model: str | None = None
    """Which model a service says that it was."""
    attempts: int | None = None
    """Requests that it took; None where nothing is requested."""


@dataclass(frozen=True)
class _Seen:
    """What the question before leaves behind."""

    pictures_sha256: tuple[str, ...]
    pictures: list[Placing]
    features: NDArray[np.float32]
    ids: NDArray[np.int64]


class Runner:
    """Asks one engine, with one clock."""

    def __init__(
        self,
        engine: Engine | Chat,
        artifact: Artifact | None,
        how: HowToAsk,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Prepare.

        Args:
            engine: already open.
            artifact: what the engine has loaded; None for the null engine without one.
            how: the run's settings.
            clock: nanoseconds, never going back.
        """
        self.chat = cast("Chat", engine) if hasattr(engine, "chat") else None
        self.engine = cast("Engine", engine)
        self.artifact = artifact
        self.how = how
        self.clock = clock
        self._perturbing = 0
        self._seen: _Seen | None = None
        self._shared = Shared()
        text = None if artifact is None else artifact.manifest.text
        caption = None if artifact is None else artifact.manifest.text_input
        self._captions = (
            None
            if artifact is None or caption is None
            else CaptionTokens(artifact.path(caption.tokenizer), caption.longest)
        )
        self.conversation = (
            None if artifact is None or text is None else Conversation(text, artifact.path(text.tokenizer))
        )

    def ask(self, query: Query) -> Answer:
        """Answer one query.

        Raises:
            SampleError: this sample cannot be read or put to the model.
            EngineError: the runtime failed.
        """
        if query.fresh:
            self._seen = None
        if query.how is not None:
            self.how = query.how
        self._shared.turn_to(query)
        start = self.clock()
        data = [image.read() for image in query.images]
        read = self.clock() - start
        if self.artifact is None and self.chat is None:
            now = self.clock()
            first = next(iter(query.question.options), "no")
            return Answer(
                text=first, finish="stop", stages_ns={"read": read, "total": self.clock() - now}, output_tokens=1
            )
        self._perturbing = 0
        if query.how is not None and self.chat is None:
            answer = self._answer_once(data, query)
        else:
            answer = self._answer(data, query)
        # A perturbation stands for what happened to the picture before: it is no part of the device's work.
        if self.how.perturbation is not None and answer.stages_ns:
            answer.stages_ns["perturb"] = self._perturbing
            answer.stages_ns["preprocess"] -= self._perturbing
            if self.chat is None:
                answer.stages_ns["total"] -= self._perturbing
        answer.stages_ns["read"] = read
        if query.warmup:
            self._seen = None
        return answer

    def _answer(self, data: list[bytes], query: Query) -> Answer:
        if self._captions is not None:
            return self._read(query.question.text, self._captions, data, query.id)
        if self.chat is not None:
            return self._talk(data, query.id, query.question, self.chat)
        if self.conversation is None:
            return self._classify(data, query.id)
        return self._converse(data, query.id, query.question, self.conversation)

    def _answer_once(self, data: list[bytes], query: Query) -> Answer:
        """Of several ways to ask about a sample: equal pictures under equal words are answered once."""
        begin = self.clock()
        p = None if self.artifact is None else self.artifact.manifest.preprocess
        shown = [] if p is None else list(enumerate(data))
        pictures = [self._picture(d, k, query.id, orientation=p.orientation, alpha=p.alpha) for k, d in shown if p]
        asked = same(pictures, query, self.how)
        known = None if query.warmup else self._shared.answers.get(asked)
        spent = self.clock() - begin
        if known is not None:  # nothing was asked, so that there is no time of an answer
            return replace(known, stages_ns={}, reused_tokens=known.prompt_tokens)
        answer = self._answer(data, query)
        for stage in ("preprocess", "total"):
            answer.stages_ns[stage] += spent
        if not query.warmup:
            self._shared.answers[asked] = answer
        return answer

    def _pixels(self, data: list[bytes], identity: str) -> tuple[list[NDArray[np.float32]], list[Placing]]:
        """Each picture's tiles, and how it stands in the prompt of a language model."""
        p = None if self.artifact is None else self.artifact.manifest.preprocess
        if p is None:
            if data:
                raise SampleError(f"the model takes text alone, the sample has {len(data)} images")
            return [], []
        images = None if self.conversation is None else self.conversation.text.images
        found, pictures = [], []
        for number, encoded in enumerate(data):
            picture = self._picture(encoded, number, identity, orientation=p.orientation, alpha=p.alpha)
            found.append(pixels(picture, p))
            if images is not None:
                pictures.append(placing(picture.shape[:2], len(found[-1]), p, images))
        return found, pictures

    def _picture(
        self,
        encoded: bytes,
        number: int,
        identity: str,
        *,
        orientation: Literal["exif", "ignore"] = "exif",
        alpha: Literal["drop", "white"] = "drop",
    ) -> NDArray[np.uint8]:
        """One picture of a sample, uint8 [H, W, 3], perturbed where the run says so."""
        how = self.how

        def plain() -> NDArray[np.uint8]:
            path, most = how.image_path, how.max_pixels
            return decode(encoded, orientation=orientation, alpha=alpha, image_path=path, max_pixels=most)

        picture = self._shared.decoded((encoded, orientation, alpha, how.image_path), plain)
        if how.perturbation is not None:
            begin, perturbation = self.clock(), how.perturbation
            picture = self._shared.perturbed(number, lambda: perturb(picture, perturbation, identity, frame=number))
            self._perturbing += self.clock() - begin
        return picture

    def _talk(self, data: list[bytes], identity: str, question: Question, chat: Chat) -> Answer:
        """One message with the pictures, no chat template: the model's side has its own."""
        begin = self.clock()
        at: dict[str, int] = {}

        def note(what: str) -> None:
            now = at[what] = self.clock()
            if what == "sent":
                at.setdefault("first sent", now)
                at.pop("first", None)

        said = chat.chat(
            message(self.how.prompt_style, question, len(data)),
            [self._picture(encoded, number, identity) for number, encoded in enumerate(data)],
            max_new_tokens=1 if self.how.scoring == "logits" else self.how.max_new_tokens,
            note=note,
        )
        end = self.clock()
        prepared, sent = at.get("first sent", begin), at.get("sent", begin)
        stages = {"preprocess": prepared - begin, "total": end - sent}
        if said.attempts > 1:
            stages["retries"] = sent - prepared
        if "first" in at:
            stages["ttft"] = at["first"] - sent
            if not said.unseen_tokens:
                stages["decode"] = end - at["first"]
        logprobs = None if said.finish == "refused" else said_logprobs(said.first, question)
        if logprobs is None and self.how.scoring == "logits" and said.finish != "refused":
            raise SampleError("not all options are among the likeliest first tokens given; use --scoring generate")
        return Answer(
            text=None if self.how.scoring == "logits" and said.finish != "refused" else said.text,
            score=p_forged(logprobs, question),
            option_logprobs=logprobs,
            finish=said.finish,
            stages_ns=stages,
            prompt_tokens=said.prompt_tokens,
            output_tokens=said.output_tokens,
            model=said.model,
            attempts=said.attempts,
        )

    def _classify(self, data: list[bytes], identity: str) -> Answer:
        if len(data) != 1:
            raise SampleError(f"a classifier takes one image, the sample has {len(data)}")
        begin = self.clock()
        batch = self._pixels(data, identity)[0][0]
        seen = self.clock()
        score = float(self.engine.classify(batch)[0])
        end = self.clock()
        if not np.isfinite(score):
            raise SampleError(f"the classifier gave {score}")
        return Answer(
            score=score,
            stages_ns={"preprocess": seen - begin, "vision": end - seen, "total": end - begin},
            tiles=len(batch),
        )

    def _read(self, text: str, captions: CaptionTokens, data: list[bytes], identity: str) -> Answer:
        begin = self.clock()
        paired = self.artifact is not None and self.artifact.manifest.preprocess is not None
        tiles = self._pixels(data, identity)[0] if paired else []
        if paired and len(tiles) != 1:
            raise SampleError(f"this classifier takes one image, the sample has {len(tiles)}")
        ids = captions.ids(text)
        prepared = self.clock()
        asked: Any = getattr(self.engine, "match" if paired else "read", None)
        if asked is None:
            raise EngineError("this engine takes no classifier of text", hint="take the engine 'ort'")
        score = float(asked(*tiles, ids)[0])
        end = self.clock()
        if not np.isfinite(score):
            raise SampleError(f"the classifier gave {score}")
        stages = {"preprocess": prepared - begin, "vision": end - prepared, "total": end - begin}
        return Answer(score=score, stages_ns=stages, prompt_tokens=len(ids), tiles=len(tiles) or None)

    def _converse(self, data: list[bytes], identity: str, question: Question, conversation: Conversation) -> Answer:
        text = conversation.text
        begin = self.clock()
        last, hashes = self._last(data)
        tiles, pictures = ([], last.pictures) if last is not None else self._pixels(data, identity)
        ids = conversation.ids(question, pictures, style=self.how.prompt_style)
        check_prompt(ids, pictures, text)
        prepared = self.clock()
        if last is not None:
            features = last.features
        elif tiles:
            features = chosen(self.engine.see(np.concatenate(tiles)), pictures)
        else:
            features = np.zeros((0, self._hidden()), dtype=np.float32)
        seen = self.clock()
        keep = self._kept(ids, text, same_pictures=last is not None)
        self._seen = None
        first = self.engine.prefill(ids, features, keep=keep or 0)
        filled = self.clock()
        tokens, finish = ([], "logits") if self.how.scoring == "logits" else self._generate(first, len(ids), text)
        end = self.clock()
        if self.how.reuse and self.how.perturbation is None:
            self._seen = _Seen(hashes, pictures, features, ids)
        return replace(
            self._told(first, question, tokens, finish, conversation),
            stages_ns={
                "preprocess": prepared - begin,
                "vision": seen - prepared,
                "prefill": filled - seen,
                "decode": end - filled,
                "total": end - begin,
            },
            tiles=sum(p.tiles for p in pictures),
            prompt_tokens=len(ids),
            output_tokens=len(tokens),
            reused_tokens=keep,
        )

    def _told(
        self, first: NDArray[np.float32], question: Question, tokens: list[int], finish: str, conversation: Conversation
    ) -> Answer:
        """What a language model said, without times and sizes."""
        if not np.isfinite(first).all():
            raise SampleError("the model gave logits that are not finite")
        logprobs = first_logprobs(first, question, conversation.first_ids)
        if logprobs is None and self.how.scoring == "logits":
            raise SampleError(
                "an option's letter is not one token, so its probability is not known; use --scoring generate"
            )
        told = None
        if self.how.scoring != "logits":
            told = conversation.decode(tokens[:-1] if finish == "stop" else tokens)
        return Answer(
            text=told, score=p_forged(logprobs, question), option_logprobs=logprobs, finish=finish, stages_ns={}
        )

    def _last(self, data: list[bytes]) -> tuple[_Seen | None, tuple[str, ...]]:
        """What the question before left behind, if it was about these pictures; and their SHA-256."""
        if not self.how.reuse or self.how.perturbation is not None:
            return None, ()
        hashes = tuple(hashlib.sha256(encoded).hexdigest() for encoded in data)
        return (self._seen if self._seen is not None and self._seen.pictures_sha256 == hashes else None), hashes

    def _kept(self, ids: NDArray[np.int64], text: Text, *, same_pictures: bool) -> int | None:
        """With how many tokens this prompt and the one before begin alike; at least one is read anew."""
        if not self.how.reuse:
            return None
        if self._seen is None or not self.engine.keeps_prefix:
            return 0
        shorter = min(len(ids) - 1, len(self._seen.ids))
        alike = ids[:shorter] == self._seen.ids[:shorter]
        if not same_pictures and text.images is not None:
            alike &= ids[:shorter] != text.images.id
        return shorter if alike.all() else int(alike.argmin())

    def _generate(self, logits: NDArray[np.float32], prompt: int, text: Text) -> tuple[list[int], str]:
        """Greedy tokens, the end token included, and why they end."""
        tokens: list[int] = []
        limit = min(self.how.max_new_tokens, text.context_length - prompt)
        while True:
            token = int(logits.argmax())
            tokens.append(token)
            if token in text.eos_token_ids:
                return tokens, "stop"
            if len(tokens) >= limit:
                return tokens, "length"
            logits = self.engine.step(token)

    def _hidden(self) -> int:
        decoder = None if self.artifact is None else self.artifact.manifest.decoder
        return 0 if decoder is None else decoder.hidden_size
