"""How a news picture and its caption are put to a model: one prompt, an agent's steps, or detectors in its stages.

What is decided here is who is asked what; how long it takes is the runner's, what it means the reader's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgebench.agent.hierarchy import STAGES, Check, ended, steps
from edgebench.agent.instructions import Instructions, load_instructions
from edgebench.agent.knowledge import CACHE, Frozen, Kept, Off, Source, open_source
from edgebench.artifacts import is_remote
from edgebench.benches.base import Question
from edgebench.engines.others import engine_class
from edgebench.errors import UsageError, did_you_mean
from edgebench.prompts.verdicts import PUBLISHED, check_reader
from edgebench.runner import Query
from edgebench.trace import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from edgebench.benches.base import Bench, Sample
    from edgebench.manifest import Artifact, Kind
    from edgebench.plan import RunPlan
    from edgebench.records import Record
    from edgebench.runner import Answer
    from edgebench.trace import Knowledge

MODEL = "model"
"""Who is asked: the run's own artifact, or the detector of a stage by the stage's name."""
_HINT = "{} with this value is for --bench mmfakebench"
DEFAULT_ENGINE = "ort"
"""Of detectors beside a model that is elsewhere."""
STEP_OF = {"text": "text_detector", "image": "image_detector", "cross": "cross_detector"}


@dataclass(frozen=True)
class Procedure:
    """One way of asking, ready to begin."""

    name: str
    """standard, mmd-agent or mixed."""
    instructions: Instructions
    reader: str
    source: Source | None
    """None where no step asks for knowledge."""
    kinds: Mapping[str, Kind]
    """Who is asked -> what kind of model it is."""
    detectors: Mapping[str, Artifact]
    """Stage -> its own artifact: a detector, or another language model."""
    engine: str | None = None
    """The detectors' engine by name; None: the run's own."""

    @property
    def label(self) -> str:
        """For a run's settings: the name, and each detector by stage, name and hash."""
        own = [f"{s}={a.manifest.name}@{a.manifest_sha256[:12]}" for s, a in self.detectors.items()]
        on = "" if self.engine is None else f"; on {self.engine}"
        return f"{self.name}({', '.join(own)}{on})" if own else self.name

    @property
    def several_calls(self) -> bool:
        """Whether a sample takes more than one call."""
        return self.name != "standard"

    def scored(self) -> list[str]:
        """The stages that a score decides, not words."""
        return [stage for stage in STAGES if self.kinds[self.who(stage)] not in {"vision-language", "language"}]

    def who(self, stage: str) -> str:
        """Who is asked in a stage."""
        return stage if stage in self.detectors else MODEL

    def put(
        self, record: Record, sample: Sample, ask: Callable[[str, Query], Answer], look_up: Callable[[str], Knowledge]
    ) -> tuple[Record, Exception | None]:
        """Ask about one sample.

        Args:
            record: what is known of the sample.
            sample: its question is the caption.
            ask: who and what -> the answer.
            look_up: entity -> knowledge.

        Returns:
            The record with the answer, or with the steps up to the failure; and the failure.
        """
        caption = sample.question.text
        if not self.several_calls:
            try:
                answer = ask(MODEL, self.single(sample))
            except Exception as error:
                return record, error
            return replace(record, **vars(answer)), None

        met: set[str] = set()

        def step(name: str, prompt: str | None) -> Call:
            stage = next(s for s, own in STAGES.items() if name in own or name == STEP_OF[s])
            who = self.who(stage)
            if name == "description" and "image" in self.scored():
                who = self.who("cross")
            question = Question(caption if prompt is None else prompt, verbatim=True)
            answer = ask(who, self._query(sample, who, question, first=who not in met))
            met.add(who)
            told = {key: value for key, value in vars(answer).items() if key in Call.__dataclass_fields__}
            return Call(step=name, prompt=prompt, **told)

        check = Check(caption, step, look_up, self.instructions, reader=self.reader, detectors=self.scored())
        failure: Exception | None = None
        try:
            check.run()
        except Exception as error:
            failure = error
        return _summed(record, tuple(check.trace)), failure

    def single(self, sample: Sample) -> Query:
        """The one question of the standard prompt."""
        prompt = self.instructions.fill("standard", {"caption": ended(sample.question.text)})
        return self._query(sample, MODEL, Question(prompt, verbatim=True), first=True)

    def begin(self, folder: Path, stack: ExitStack) -> Callable[[str], Knowledge]:
        """What things are looked up with; what is found is kept in the run's folder.

        Raises:
            DataError: what an earlier sitting kept there is damaged, or the folder cannot be written.
        """
        source = self.source or Off()
        if not isinstance(source, Off | Frozen):
            source = Kept(source, folder / CACHE)
        stack.callback(source.close)
        return source.look_up

    def _query(self, sample: Sample, who: str, question: Question, *, first: bool) -> Query:
        kind = self.kinds[who]
        images = () if kind in {"language", "text-classifier"} else sample.images
        return Query(sample.id, images, question, fresh=first and self.several_calls)


def _summed(record: Record, trace: tuple[Call, ...]) -> Record:
    """The record of several calls: times and tokens added up, the last call's text."""
    stages: dict[str, int] = {}
    for call in trace:
        for stage, ns in call.stages_ns.items():
            stages[stage] = stages.get(stage, 0) + ns
        if call.knowledge is not None and call.knowledge.elapsed_ns is not None:
            stages["knowledge"] = stages.get("knowledge", 0) + call.knowledge.elapsed_ns
    cut = any(call.finish == "length" for call in trace)
    last = trace[-1] if trace else None
    return replace(
        record,
        trace=trace,
        text=None if last is None else last.text,
        finish=None if last is None else "length" if cut else last.finish,
        stages_ns=stages,
        prompt_tokens=_total([call.prompt_tokens for call in trace]),
        output_tokens=_total([call.output_tokens for call in trace]),
        reused_tokens=_total([call.reused_tokens for call in trace]),
    )


def _total(values: list[int | None]) -> int | None:
    known = [n for n in values if n is not None]
    return sum(known) if known else None


def open_protocol(bench: Bench, plan: RunPlan) -> Procedure | None:
    """The protocol that a run asked for; None where the bench's questions are put as they are.

    Raises:
        UsageError: the bench, the model or the other options do not go with it.
        EdgebenchError: the instructions or the source of knowledge cannot be opened.
    """
    known: tuple[str, ...] = getattr(bench, "protocols", ())
    name, prompts, knowledge, own = plan.protocol, plan.prompts, plan.knowledge, plan.detectors
    kind: Kind = "vision-language" if plan.artifact is None else plan.artifact.manifest.kind
    if not known:
        for option, value in (("--protocol", name), ("--prompts", prompts), ("--knowledge", knowledge)):
            if value is not None:
                raise UsageError(f"the bench {bench.name!r} takes no {option} {value!r}", hint=_HINT.format(option))
        if own or plan.detector_engine is not None:
            raise UsageError(f"the bench {bench.name!r} takes no detectors", hint="they are for --bench mmfakebench")
        if plan.matcher == PUBLISHED:
            raise UsageError(f"the answer matcher {PUBLISHED!r} is for --bench mmfakebench")
        return None
    if name is not None and name not in known:
        raise UsageError(f"unknown protocol {name!r}", hint=did_you_mean(name, known))
    if (own or plan.detector_engine is not None) and name != "mixed":
        raise UsageError("detectors of a stage are for --protocol mixed")
    words = {"vision-language", "language"}
    if name is None and kind not in words:
        if prompts is not None or knowledge is not None:
            raise UsageError(f"a {kind} takes no --prompts and no --knowledge", hint="or choose --protocol mixed")
        return None
    name = name or "standard"
    kinds: dict[str, Kind] = {MODEL: kind, **{stage: found.manifest.kind for stage, found in own.items()}}
    if name != "mixed" and kind not in words:
        raise UsageError(f"the protocol {name!r} asks a language model, this is a {kind}", hint="or take mixed")
    if plan.scoring == "logits":
        raise UsageError("MMFakeBench's answers are phrases, not option letters", hint="leave --scoring out")
    check_reader(plan.matcher)
    protocol = Procedure(name, load_instructions(prompts), plan.matcher, None, kinds, own, _engine_of_detectors(plan))
    if name == "mixed":
        _check_stages(protocol)
    if not protocol.several_calls or "entity" not in steps(protocol.scored()):
        if knowledge is not None:
            raise UsageError(f"nothing is looked up under {name!r} with these models", hint="leave --knowledge out")
        return protocol
    return replace(protocol, source=open_source(knowledge or "none"))


def _engine_of_detectors(plan: RunPlan) -> str | None:
    """By name; None: the run's own."""
    chosen = plan.detector_engine or (DEFAULT_ENGINE if is_remote(plan.engine) else plan.engine)
    engine_class(chosen)
    if is_remote(chosen):
        raise UsageError(f"the engine {chosen!r} runs no detectors", hint="take one that runs artifacts")
    return None if chosen == plan.engine or not plan.detectors else chosen


def _check_stages(protocol: Procedure) -> None:
    fit: dict[str, tuple[str, ...]] = {
        "text": ("text-classifier", "vision-language", "language"),
        "image": ("classifier", "vision-language"),
        "cross": ("image-text-classifier", "vision-language", "language"),
    }
    if not protocol.detectors:
        raise UsageError(
            "mixed detection needs a detector for a stage at least",
            hint="pass --text-detector, --image-detector or --cross-detector; the artifact takes the other stages",
        )
    for stage, kinds in fit.items():
        who = protocol.who(stage)
        if protocol.kinds[who] not in kinds:
            raise UsageError(
                f"the {stage} stage cannot be a {protocol.kinds[who]} model's",
                hint=f"pass --{stage}-detector with a model of the kind {' or '.join(kinds)}",
            )
