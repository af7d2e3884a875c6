"""Profiles, estimates, energy, validity and the gate as a person drives them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from edgebench.config import shipped_yaml
from edgebench.manifest import read_artifact
from edgebench.profiles import load_profile
from edgebench.shapes import Shape, VisionShape, works
from tests.conftest import Cli, Exports, rarely
from tests.sensors import trees

PROFILE = """
name: board
summary: A board that is faster than any.
threads: 1
spinning: false
memory_kind: system
memory_mib: {value: 4096, source: test}
bandwidth_gb_s: {value: 10000, source: test}
peak_tera_operations: {fp32: {value: 100, source: test}}
budgets: {latency_p90_ms: %s, memory_mib: %s, accuracy_loss_points: %s}
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


class Meanwhile:
    """Calls something every 20 ms while a command runs."""

    def __init__(self, step: Any) -> None:
        self._step, self._over = step, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(0.02):
            self._step()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


class Server:
    """A machine of two cores at 20 W, as a tree of files; others use so many of its cores."""

    def __init__(self, root: Path, others: float = 0.0) -> None:
        self.root, self.others, self.begin = trees.intel(root, package_uj=0, dram_uj=0), others, time.monotonic()

    def step(self) -> None:
        passed = time.monotonic() - self.begin
        # One file is replaced whole, as a read of /proc sees it.
        for name, content in (
            ("sys/class/powercap/intel-rapl:0/energy_uj", int(20e6 * passed) % 10_000_000),
            ("proc/stat", trees.cpu_stat((int(100 * self.others * passed), 0, 0), (0, 0, 0))),
        ):
            partial = self.root / "partial"
            partial.write_text(f"{content}\n")
            partial.replace(self.root / name)


def shape_of(checkpoint: Path) -> Shape:
    """What a recipe would state of a checkpoint."""
    config = json.loads((checkpoint / "config.json").read_text())
    text, eyes = config["text_config"], config["vision_config"]
    head = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    layer = config["vision_feature_layer"]
    return Shape(
        text["num_hidden_layers"],
        text["hidden_size"],
        text["intermediate_size"],
        text["num_attention_heads"],
        text["num_key_value_heads"],
        head,
        text["vocab_size"],
        text["max_position_embeddings"],
        VisionShape(
            eyes["num_hidden_layers"] + layer + 1,
            eyes["hidden_size"],
            eyes["intermediate_size"],
            eyes["image_size"],
            eyes["patch_size"],
            config["vision_feature_select_strategy"] == "full",
        ),
    )


@pytest.mark.parametrize("precision", ["fp32", rarely("int8")])
def test_a_graphs_operations_are_those_of_its_shape(exports: Exports, twin: Path, precision: str) -> None:
    manifest = read_artifact(exports(precision)).manifest
    kinds = dict.fromkeys(("vision", "embed", "decoder", "lm_head"), precision) | {"embed": "fp32"}
    expected, _ = works(shape_of(twin), kinds)
    for name in ("vision", "decoder"):
        counted, said = manifest.graphs[name].work, expected[name]
        assert counted is not None
        assert counted.operations_per_item == said.operations_per_item
        assert (counted.operations_per_pair, counted.operations_once) == (
            said.operations_per_pair,
            said.operations_once,
        )
        assert counted.weight_bytes < manifest.graphs[name].bytes
        if precision == "fp32":
            assert said.weight_bytes <= counted.weight_bytes < 1.25 * said.weight_bytes, "norms, biases, positions"


def test_estimates(cli: Cli, exports: Exports) -> None:
    done = cli("estimate", "llava-v1.5-7b", "--precision", "int4", "--profile", "jetson-orin-nano", "--json")
    assert done.code == 0, done.err
    value = done.json
    assert value["estimate"] is True
    assert value["memory"]["fits"] is True
    assert value["question"] == {"tiles": 1, "prompt_tokens": 640, "output_tokens": 16}
    # The 7B's weights in 4 bits and 8, 102.4 GB/s: no runtime writes a token in less.
    assert 40 < value["least_ms"]["tpot"]["ms"] < 60
    assert value["least_ms"]["tpot"]["by"] == "memory"
    assert value["least_ms"]["ttft"]["by"] == "operations"
    done = cli("estimate", "llava-v1.5-7b", "--precision", "fp16", "--profile", "raspberry-pi-5")
    assert "CANNOT FIT" in done.out
    assert "an estimate" in done.out
    done = cli("estimate", exports("fp32"), "--profile", "l4", "--json")
    assert done.json["model_source"].startswith("counted")
    assert done.json["memory"]["weight_bytes"] > 0
    assert done.json["budgets"][0]["can_be_kept"] is True
    done = cli("estimate", "mesonet-df", "--profile", "l4")
    assert done.code == 2
    assert "export it" in done.err
    assert "did you mean 'jetson-orin-nx'" in cli("estimate", "llava-v1.5-7b", "--profile", "jetson-orin-n").err


def test_profiles_state_a_source_for_every_figure(cli: Cli) -> None:
    boards = [load_profile(name) for name in shipped_yaml("profiles") if not name.startswith("cpu")]
    assert len(boards) >= 9
    for board in boards:
        for figure in (board.memory_mib, board.bandwidth_gb_s, board.cache_mib, *board.peak_tera_operations.values()):
            assert figure is not None
            assert len(figure.source) > 5
        assert board.budgets.latency_p90_ms
    done = cli("profile", "-o", "mine.yaml", "--json")
    assert done.code == 0, done.err
    figures = done.json["profile"]
    assert 0.5 < figures["bandwidth_gb_s"]["value"] < 10_000
    assert 1e-4 < figures["peak_tera_operations"]["fp32"]["value"] < 1000
    assert "measured" in figures["bandwidth_gb_s"]["source"]
    assert cli("profile", "-o", "mine.yaml").code == 2
    assert cli("estimate", "smollm2-135m", "--profile", "mine.yaml").code == 0


@linux
def test_a_quiet_run_is_valid_and_its_energy_and_limits_are_known(cli: Cli, tsv: Path, exports: Exports) -> None:
    def profile(*budgets: object) -> str:
        (cli.folder / "board.yaml").write_text(PROFILE % budgets)
        return "board.yaml"

    server = Server(cli.folder / "host")
    arguments = ("run", exports("fp32"), "--data", tsv, "--max-new-tokens", 100, "--profile", profile(1, 1, 1))
    with Meanwhile(server.step):
        done = cli(*arguments, "-o", "out", "--json", EDGEBENCH_HOST_ROOT=str(server.root))
    assert done.code == 0, done.err
    value = done.json
    assert value["validity"]["unknown"] == []
    assert not [r for r in value["validity"]["reasons"] if "over the run" not in r], (
        "but for a drift, which may be real"
    )
    assert value["validity"]["sittings"][0]["temperature_c"]["max"] == 55.5
    energy = value["energy"]
    assert energy["source"] == "rapl: package-0, dram"
    assert energy["measured"] == 40
    assert energy["watts_mean"] == pytest.approx(20, rel=0.3)
    assert energy["joules_per_sample"] == pytest.approx(energy["joules"] / 40)
    for stage in ("vision", "prefill", "ttft", "tpot"):
        assert value["physical_limits"]["stages"][stage]["measured_over_least"] > 1
    sizes = {row["what"]: row["bytes"] for row in value["memory_methods"]}
    assert 0 < sizes["weights"] < sizes["artifact on disk"]
    assert 10 << 20 < sizes["process, proportional"] <= sizes["process peak"]
    assert sizes["control group, peak"] == 123456
    assert sizes["GPU"] is None

    # The times of a tile without the noise of the machine that the test runs on: no drift.
    path = cli.folder / "out" / "records.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines[1:]:
        line["stages_ns"]["vision"] = 1_000_000 * line["tiles"]
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    text = cli("report", "out").out
    assert "INVALID" not in text
    for words in ("VALID", "estimate", "measured / least", "a right answer", "Pss of smaps_rollup"):
        assert words in text

    passed = cli("gate", "out", "--profile", profile(60_000, 4096, 0.5), "--base", "out", "--json")
    assert passed.code == 0, passed.err
    assert passed.json["verdict"] == "PASS"
    failed = cli("gate", "out", "--profile", profile(0.001, 4096, "null"))
    assert failed.code == 12
    assert "FAIL" in failed.out
    assert "latency p90" in failed.err
    unknown = cli("gate", "out", "--profile", profile("null", "null", 1), "--json")
    assert unknown.code == 12
    assert unknown.json["verdict"] == "UNKNOWN"
    assert cli("gate", "out", "--profile", "cpu").code == 3

    # The same answers as of two sittings: never pooled in silence.
    late = [line | {"sitting": 2} for line in lines[21:]]
    path.write_text("".join(json.dumps(x) + "\n" for x in [*lines[:21], lines[0] | {"sitting": 2}, *late]))
    again = cli("report", "out", "--json").json
    assert again["pooled_sittings"]
    assert [s["answered"] for s in again["sittings_detail"]] == [20, 20]
    assert again["validity"]["timing"] == "unknown", "nothing was seen in the second"
    assert "Latency by sitting" in cli("report", "out").out


@linux
def test_a_run_beside_a_busy_process_is_invalid_for_timing_alone(cli: Cli, tsv: Path, exports: Exports) -> None:
    meter = cli.folder / "meter.csv"
    meter.write_text("time,watts\n")

    def read() -> None:
        with meter.open("a") as stream:
            stream.write(f"{time.time():.6f},7.5\n")

    read()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        with Meanwhile(read):
            done = cli(
                "run", exports("fp32"), "--data", tsv, "--max-new-tokens", 60, "--energy", meter, "-o", "out", "--json"
            )
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert done.code == 0, done.err
    validity = done.json["validity"]
    assert validity["timing"] == "invalid"
    assert validity["accuracy"] == "valid"
    assert "others used" in validity["reasons"][0]
    assert validity["sittings"][0]["background"]["max_cores"] > 0.25
    energy = done.json["energy"]
    assert energy["source"] == "external meter"
    assert energy["watts_mean"] == pytest.approx(7.5, rel=0.01)
    assert energy["measured"] >= 38
    assert done.json["physical_limits"] is None
    assert (cli.folder / "out" / "power.csv").read_text().startswith("time,watts\n")
    assert "INVALID" in cli("report", "out").out


def test_a_source_of_energy_that_is_not_there_is_refused_or_unknown(cli: Cli, tsv: Path) -> None:
    empty = str(cli.folder / "nothing")
    done = cli("run", "--engine", "null", "--data", tsv, "--energy", "rapl", EDGEBENCH_HOST_ROOT=empty)
    assert done.code == 2
    assert "RAPL: no package" in done.err
    assert cli("run", "--engine", "null", "--data", tsv, "--energy", "meter.csv").code == 8
    done = cli("run", "--engine", "null", "--data", tsv, "-o", "out", "--json", EDGEBENCH_HOST_ROOT=empty)
    assert done.code == 0, done.err
    assert done.json["energy"]["joules_per_sample"] is None
    assert "RAPL" in done.json["energy"]["unsupported"]
    assert done.json["validity"]["timing"] == "unknown"
