"""Run folders with records that are known in advance, written by the store itself."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgebench.benches.taxonomy import categories
from edgebench.environment import describe_host
from edgebench.profiles import DeviceProfile, Figure
from edgebench.records import FORMAT, ArtifactFact, DataFact, Record, RunHeader, Settings, Sitting, Store
from edgebench.sensors.observation import CONDITIONS, Observation
from edgebench.work import Work

if TYPE_CHECKING:
    from pathlib import Path

TASKS = ("BC", "SLS", "SLD", "TL")
PARITY: dict[str, Any] = {
    "rows": [{"what": "decode", "max_abs_difference": 0.1, "top1_agreement": 1.0}],
}


def write_conditions(folder: Path, *, hot: bool) -> None:
    """Two minutes of looks at the machine; a hot one halves its clock."""
    with (folder / CONDITIONS).open("w", encoding="utf-8") as stream:
        for k in range(120):
            slow = hot and k > 60
            seen = Observation(
                sitting=1,
                unix_ns=10**18 + k * 10**9,
                phase="during",
                busy_s=float(k),
                own_s=float(k),
                clock_mhz=1500.0 if slow else 3000.0,
                temperature_c=95.0 if slow else 50.0 + k / 4,
            )
            stream.write(json.dumps(dataclasses.asdict(seen)) + "\n")


def write_run(
    folder: Path,
    *,
    precision: str = "fp32",
    seed: int = 0,
    slower: float = 1.0,
    wrong: int = 0,
    questions: int = 400,
    name: str = "a model",
    task: str | None = None,
    peak: int = 150 << 20,
    **settings: Any,
) -> Path:
    """A finished run of a vision-language model.

    Args:
        folder: new.
        precision: of the artifact.
        seed: of the times.
        slower: all times are multiplied by it.
        wrong: so many questions more are answered wrongly than the quarter that always are.
        questions: how many are asked.
        name: the model's.
        task: every question's, in place of four in turn.
        peak: memory of the engine's process, in bytes.
        settings: in place of the usual ones.
    """
    chosen = Settings("ort", "default", "forensics", "generate", "strict", "llava", "lossless", 8, None)
    artifact = ArtifactFact(name, "llava", "ort", precision, 4 << 20, "a" * 64, "b" * 64, "c" * 64, PARITY)
    data = DataFact("ForensicsBench.tsv", 1, "fingerprint", questions)
    header = RunHeader(FORMAT, "2026-05-01T10:00:00.000+00:00", "0.1.0", replace(chosen, **settings), artifact, data)
    slugs = sorted(categories())[:6]
    draw = random.Random(seed)
    with Store.create(folder, header) as store:
        store.append(Sitting(1, header.created, describe_host(), {"engine": "ort"}, "VmHWM", "cpu", load_ns=10**8))
        for k in range(questions):
            right = k % 4 != 0 and not (k % 4 == 1 and k // 4 < wrong)
            parts = [int(slower * part * draw.lognormvariate(0, 0.4)) for part in (2e6, 9e6, 12e6, 1e6)]
            stages = dict(zip(("preprocess", "vision", "prefill", "decode"), parts, strict=True))
            store.append(
                Record(
                    id=str(k),
                    sitting=1,
                    target="A",
                    category=slugs[k % len(slugs)],
                    answer="A" if right else "B",
                    method="letter",
                    text="A" if right else "B",
                    option_logprobs={"A": -0.1, "B": -2.4},
                    finish="stop",
                    stages_ns={"read": 1000, **stages, "total": sum(parts)},
                    output_tokens=2 if k % 2 else 1,
                    prompt_tokens=70,
                    peak_memory_bytes=peak,
                    options={"A": "real", "B": "forged\tor not"},
                    forged_option="B",
                    facts={"task": task or TASKS[k % 4]},
                )
            )
    return folder


def write_detector(
    folder: Path, name: str, *, ms: float, wrong: float, size: int | None = 100 << 20, fails: int = 0
) -> Path:
    """A finished run of a classifier over 60 real and 40 forged pictures, on a device whose peaks are known.

    Args:
        folder: new.
        name: the model's; another name is another model.
        ms: of each picture.
        wrong: share of forged pictures that are missed; no real one is taken for forged.
        size: peak memory of the engine's process, in bytes.
        fails: so many of the first pictures fail.
    """
    chosen = Settings("ort", "default", "packed", "threshold", "strict", "default", "lossless", 8, None)
    source, passport = (hashlib.sha256(f"{what} {name}".encode()).hexdigest() for what in ("weights", "pixels"))
    work = {"classifier": Work("fp32", 10**8)}
    artifact = ArtifactFact(name, "classifier", "portable", "fp32", 1 << 20, "a" * 64, source, passport, PARITY, work)
    header = RunHeader(
        FORMAT, "2026-05-01T10:00:00.000+00:00", "0.1.0", chosen, artifact, DataFact("own.tsv", 1, "own", 100)
    )
    device = DeviceProfile("board", "", peak_tera_operations={"fp32": Figure(0.1, "test")})
    with Store.create(folder, header) as store:
        store.append(
            Sitting(
                1, header.created, describe_host(), {"engine": "ort"}, "VmHWM", "board", load_ns=10**8, device=device
            )
        )
        for k in range(100):
            forged = k % 5 < 2
            score = 0.9 if forged and (k // 5 % 20) >= 20 * wrong else 0.1 + k / 1e4
            store.append(
                Record(
                    id=str(k),
                    sitting=1,
                    target="A" if forged else "B",
                    category=f"nonhuman_{'entiresynthesis_diffusion' if forged else 'real_none'}_visibleimage_category",
                    score=score,
                    stages_ns={"preprocess": 10**6, "vision": int(ms * 1e6), "total": int((ms + 1) * 1e6)},
                    tiles=1,
                    peak_memory_bytes=size,
                    options={"A": "AI-generated", "B": "non AI-generated"},
                    forged_option="A",
                    facts={"task": "BC"},
                    error="no face is found" if k < fails else None,
                )
            )
    return folder
