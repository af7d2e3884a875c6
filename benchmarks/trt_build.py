"""How long TensorRT builds the plans of an artifact, and with how much memory, against what was estimated.

    edgebench export smollm2-135m --weights SmolLM2-135M-Instruct.Q4_1.gguf --fp16 --dialect portable -o smol-fp16
    python benchmarks/trt_build.py smol-fp16 [more artifacts]

Plans that are there already are taken: remove `.trt-cache` in the artifact to build them again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgebench.engines.trt import TrtEngine
from edgebench.engines.trt_plans import FOLDER, PLAN, estimate, facts_of
from edgebench.manifest import read_artifact
from edgebench.profiles import load_profile


def main() -> None:
    print("artifact  graph  graph MiB  plan MiB  build s (estimate)  peak MiB (estimate)")
    for folder in map(Path, sys.argv[1:]):
        artifact = read_artifact(folder)
        TrtEngine(artifact, load_profile("cpu"), {}).prepare()
        for entry in sorted((folder / FOLDER).glob("*/")):
            facts, name = facts_of(entry), entry.name.rpartition("-")[0]
            graph = artifact.manifest.graphs[name]
            seconds, memory = estimate(graph, facts["made_for"]["module"])
            mib = [size / 2**20 for size in (graph.bytes, facts["bytes"][PLAN], facts["peak_memory_bytes"], memory)]
            print(
                f"{folder.name}  {name}  {mib[0]:.0f}  {mib[1]:.0f}  {facts['build_s']:.1f} ({seconds:.0f})  "
                f"{mib[2]:.0f} ({mib[3]:.0f})"
            )


if __name__ == "__main__":
    main()
