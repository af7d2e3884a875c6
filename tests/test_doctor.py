"""`edgebench doctor`, and what it reads of machines that are not this one."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from edgebench import devices
from edgebench.engines import ENGINES
from edgebench.engines.probe import NEEDS
from edgebench.registry import load
from edgebench.report.doctor import doctor_tables
from edgebench.report.render import to_terminal
from tests.conftest import Cli, path


def test_engines_of_all_kinds(cli: Cli, site: Path) -> None:
    """Those that run, those that lack something, and those whose import crashes or hangs."""
    stuck = cli.folder / "stuck"
    (stuck / "stuck-1.0.dist-info").mkdir(parents=True)
    (stuck / "stuck-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: stuck\nVersion: 1.0\n")
    (stuck / "stuck-1.0.dist-info" / "entry_points.txt").write_text("[edgebench.engines]\nstuck = stuck:Engine\n")
    (stuck / "stuck.py").write_text("import time\nprint('looking for the device')\ntime.sleep(600)\n")
    begin = time.monotonic()
    done = cli("doctor", "--json", "--time-limit", 8, PYTHONPATH=path(site, stuck), CUDA_VISIBLE_DEVICES="")
    assert done.code == 0, done.err
    assert done.err == "", "what an engine prints while it is looked at is not for the user"
    assert time.monotonic() - begin < 100
    engines = done.json["engines"]
    assert engines.keys() >= {*ENGINES, "brittle", "dead", "stuck", "absent", "vague"}
    assert engines["null"]["runs"] is True
    assert "killed by SIGABRT; its last words: symbol lookup error" in engines["dead"]["reason"]
    assert "gave nothing for 8 s and was ended; its last words: looking for the device" in engines["stuck"]["reason"]
    assert "no attribute 'Absent'" in engines["absent"]["reason"]
    assert "gave str, not an Availability" in engines["vague"]["reason"]
    assert not any(engines[name]["runs"] for name in ("dead", "stuck", "absent", "vague"))
    own = engines["brittle"]
    assert (own["runs"], own["builds"], own["install"]) == (True, False, "apt install it")
    assert own["devices"] == {"npu": "there is no board on this bus"}
    assert "edgebench's own" in done.json["refused"]["ort"]


def test_this_machine(cli: Cli) -> None:
    done = cli("doctor", "--json")
    assert done.code == 0, done.err
    found = done.json
    ort = found["engines"]["ort"]
    assert (ort["runs"], ort["devices"]["cpu"], ort["builds"]) == (True, None, None)
    assert ort["versions"]["onnxruntime"] == found["host"]["packages"]["onnxruntime"]
    for engine in found["engines"].values():
        assert engine["runs"] or engine["reason"], "who cannot run says why"
    assert found["cache"]["folder"] == str(cli.folder / "cache")
    assert 0 < found["cache"]["free_bytes"] <= found["cache"]["total_bytes"]
    assert 1 <= found["cpu"]["usable_cores"] <= found["cpu"]["logical_cores"]
    assert found["nvidia"]["gpus"] or found["nvidia"]["unknown"]
    assert found["extras"]["gpu"]["install"] == "pip install 'edgebench[gpu]'"
    for name, row in found["extras"].items():
        assert row["installed"] or row["missing"], name
    shown = io.StringIO()
    to_terminal(doctor_tables(found), shown)
    table = shown.getvalue()
    for words in ("why not, and what helps", "CPU features", "free of", "Extras", "NVIDIA"):
        assert words in table


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_says_what_it_needs(name: str) -> None:
    assert name in NEEDS or hasattr(load(ENGINES[name][0]), "available")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_a_jetson(tmp_path: Path) -> None:
    core = "sys/devices/system/cpu/cpu{}"
    root = write(
        tmp_path,
        {
            "proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd asimdhp asimddp\n\nprocessor\t: 1\nFeatures\t: fp asimd asimddp\n",
            core.format("0/cpufreq/scaling_governor"): "schedutil\n",
            core.format("0/cpufreq/scaling_max_freq"): "2201600\n",
            core.format("1/cpufreq/scaling_governor"): "schedutil\n",
            core.format("1/cpufreq/scaling_max_freq"): "2201600\n",
            core.format("0/topology/thread_siblings_list"): "0\n",
            core.format("1/topology/thread_siblings_list"): "1\n",
            "var/lib/nvpmodel/status": "pmode:0002 fmode:cool",
            "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=2 NAME=MODE_30W >\n",
            "dev/nvhost-gpu": "",
            "sys/fs/cgroup/cpu.max": "150000 100000\n",
        },
    )
    cpu = devices.cpu(root)
    assert cpu.features is not None
    assert {name for name, has in cpu.features.items() if has} == {"NEON", "dot product"}, "what every core has"
    assert (cpu.physical_cores, cpu.quota_cores, cpu.governor) == (2, 1.5, "schedutil up to 2202 MHz")
    assert devices.power_mode(root) == "nvpmodel 2 (MODE_30W)"
    assert devices.accelerators(root) == {"/dev/nvhost-gpu": "nvgpu"}


def test_a_laptop_with_a_gpu_but_no_management_library(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/cpuinfo": "flags\t\t: avx2 fma f16c avx512f avx512_vnni amx_tile amx_int8\n",
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n",
            "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA GeForce RTX 4090\nIRQ: 1\n",
            "sys/firmware/acpi/platform_profile": "low-power\n",
            "sys/class/power_supply/AC/online": "0\n",
            "sys/class/drm/renderD128/device/uevent": "DRIVER=i915\nPCI_CLASS=30000\n",
            "sys/class/accel/accel0/device/uevent": "DRIVER=intel_vpu\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
        },
    )
    cpu = devices.cpu(root)
    assert cpu.features is not None
    assert {name for name, has in cpu.features.items() if has} == {
        "AVX2",
        "FMA",
        "F16C",
        "AVX512",
        "AVX512-VNNI",
        "AMX-INT8",
    }
    assert (cpu.quota_cores, cpu.governor, cpu.physical_cores) == (None, None, None)
    assert devices.power_mode(root) == "platform profile low-power, on battery"
    assert devices.accelerators(root) == {"/dev/dri/renderD128": "i915", "/dev/accel/accel0": "intel_vpu"}
    found = devices.nvidia(root)
    assert (found.driver, [gpu.name for gpu in found.gpus]) == ("580.65.06", ["NVIDIA GeForce RTX 4090"])
    assert devices.cpu(tmp_path / "nothing").features is None
    assert devices.power_mode(tmp_path / "nothing") is None
    assert devices.nvidia(tmp_path / "nothing") == devices.Nvidia()
