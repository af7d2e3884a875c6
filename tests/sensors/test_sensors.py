"""Readers of /proc and /sys, on trees of files that show what boards show."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgebench import devices
from edgebench.errors import DataError, UsageError
from edgebench.sensors import conditions, memory
from edgebench.sensors.energy import Rails, Rapl, Unsupported, open_source
from edgebench.sensors.nvml import NoNvml, Nvml
from edgebench.sensors.power_log import PowerLog, read_power_log, write_power_log
from edgebench.sensors.watch import check_energy
from tests.sensors import trees


def test_rapl_counts_each_joule_once_and_over_the_wrap(tmp_path: Path) -> None:
    source = Rapl(trees.intel(tmp_path))
    assert source.scope == "package-0, dram"
    assert source.joules() == 0
    trees.intel(tmp_path, package_uj=7_500_000, dram_uj=1_500_000)
    assert source.joules() == pytest.approx(3.0)
    trees.intel(tmp_path, package_uj=500_000, dram_uj=1_500_000)  # 7.5 -> 10 = 0 -> 0.5
    assert source.joules() == pytest.approx(6.0)
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
    assert source.joules() is None


def test_unsupported_says_why(tmp_path: Path) -> None:
    source, why = open_source("auto", tmp_path, gpu=False)
    assert source is None
    assert why is not None
    assert "INA3221" in why
    assert "RAPL: no package" in why
    trees.intel(tmp_path)
    counter = tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj"
    counter.unlink()
    with pytest.raises(Unsupported, match="superuser"):
        open_source("rapl", tmp_path, gpu=False)
    with pytest.raises(UsageError, match="known: auto, rapl"):
        check_energy("sun")
    with pytest.raises(DataError, match=r"none\.csv"):
        check_energy(str(tmp_path / "none.csv"))


@pytest.mark.parametrize(
    ("board", "scope", "watts"),
    [
        (trees.jetson, "VDD_IN", 5.0),
        (trees.agx_orin, "VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0", 20.0),
    ],
)
def test_a_jetsons_rails(tmp_path: Path, board: object, scope: str, watts: float) -> None:
    source, _ = open_source("auto", board(tmp_path), gpu=True)  # type: ignore[operator]
    assert isinstance(source, Rails)
    try:
        assert source.scope == scope
        assert source.watts() == pytest.approx(watts)
        begin, first = time.monotonic(), source.joules()
        time.sleep(0.12)
        last, end = source.joules(), time.monotonic()
        assert first is not None
        assert last is not None
        assert 0.12 * watts <= last - first <= (end - begin) * watts * 1.001
    finally:
        source.close()


def test_jetpack_4s_rails(tmp_path: Path) -> None:
    folder = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    names = {f"{folder}/rail_name_0": "POM_5V_IN", f"{folder}/rail_name_1": "POM_5V_GPU"}
    trees.write(tmp_path, {**names, f"{folder}/in_power0_input": 3210, f"{folder}/in_power1_input": 900})
    source = Rails(tmp_path)
    assert source.watts() == pytest.approx(3.21)
    source.close()


def test_an_external_meter(tmp_path: Path) -> None:
    path = tmp_path / "meter.csv"
    path.write_text("Time,Volts,Watts\n2026-01-01T00:00:00Z,5,10\n2026-01-01T00:00:02+00:00,5,20\n\n1767225604,5,20\n")
    log = read_power_log(path)
    t = 1_767_225_600.0
    assert log.joules(t, t + 4) == pytest.approx(30 + 40)
    assert log.joules(t + 1, t + 3) == pytest.approx((15 + 20) / 2 + 20)
    assert log.joules(t + 1, t + 1) == 0
    assert log.joules(t - 0.1, t + 1) is None
    assert log.joules(t, t + 4.1) is None
    part = log.between(t + 2.5, t + 3)
    assert part.times == [t + 2, t + 4]
    write_power_log(path, part)
    assert read_power_log(path).joules(t + 2.5, t + 3) == pytest.approx(10)
    assert PowerLog([0.0, 10.0, 11.0], [1.0, 1.0, 1.0]).joules(1, 2) is None, "nothing is known across a long gap"
    assert PowerLog([0.0, 10.0, 11.0], [1.0, 1.0, 1.0]).joules(10.2, 10.4) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "no columns"),
        ("", "no columns"),
        ("time,watts\n1,x\n", "meter.csv:2"),
        ("time,watts\n1,1\n1,2\n", "meter.csv:3"),
        ("time,watts\n1,-1\n", "below 0"),
        ("time,watts\nnan,1\n", "meter.csv:2"),
        ("time,watts\n1\n", "meter.csv:2"),
    ],
)
def test_a_wrong_meter_file_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "meter.csv").write_text(text)
    with pytest.raises(DataError, match=says):
        read_power_log(tmp_path / "meter.csv")


def test_conditions_of_boards(tmp_path: Path) -> None:
    server = trees.intel(tmp_path / "server")
    assert conditions.busy_s(server, frozenset({0, 1})) == pytest.approx(31.0)
    assert conditions.busy_s(server, frozenset({1})) == pytest.approx(21.0), "what was stolen counts"
    assert conditions.clock_mhz(server) == 2400
    assert conditions.temperature_c(server) == 55.5
    assert conditions.throttle_events(server) == 7
    assert devices.governor(server) == "powersave up to 3400 MHz"
    assert devices.nvpmodel(server) is None
    assert conditions.held_back(server) == ()
    assert memory.available_bytes(server) == 4000 * 1024
    assert memory.cgroup_peak_bytes(server) == 123456
    board = trees.jetson(tmp_path / "jetson")
    assert devices.nvpmodel(board) == "2 (MAXN_SUPER)"
    assert conditions.throttle_events(board) == 2
    assert conditions.module_gpu_mhz(board) == 1020
    assert conditions.module_gpu_mhz(server) is None
    pi = trees.write(tmp_path / "pi", {"sys/devices/platform/soc/soc:firmware/get_throttled": "50005"})
    assert conditions.held_back(pi) == ("undervoltage", "throttled")
    nothing = tmp_path / "nothing"
    for reader in (conditions.clock_mhz, conditions.temperature_c, conditions.throttle_events, devices.governor):
        assert reader(nothing) is None
    assert conditions.busy_s(nothing, frozenset({0})) is None
    assert memory.available_bytes(nothing) is None
    assert memory.cgroup_peak_bytes(nothing) is None
    old = {"proc/self/cgroup": "5:memory:/a\n1:cpu:/", "sys/fs/cgroup/memory/memory.max_usage_in_bytes": 77}
    assert memory.cgroup_peak_bytes(trees.write(tmp_path / "old", old)) == 77


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_own_time_is_that_of_the_whole_family_and_of_no_other() -> None:
    code = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"
    own = conditions.OwnTime(os.getpid())
    before = own.seconds()
    subprocess.run([sys.executable, "-c", nested], check=True)
    after = own.seconds()
    assert before is not None
    assert after is not None
    assert 0.29 <= after - before < 3, "a grandchild that ended and was waited for"
    assert os.getpid() in own.pids()
    assert 1 not in own.pids()
    assert memory.pss_bytes(Path("/proc"), [os.getpid()]) is not None
    assert memory.pss_bytes(Path("/proc"), [2**22 + 1]) is None


def test_nvml_in_the_library_s_own_names_and_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is here: each call that is made exists in nvidia-ml-py, and answers as nvml.h says."""
    library = pytest.importorskip("pynvml")
    unsupported = library.NVMLError(library.NVML_ERROR_NOT_SUPPORTED)

    class Process:
        def __init__(self, pid: int, used: int | None) -> None:
            self.pid, self.usedGpuMemory = pid, used

    says = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda index: ("index", index),
        "nvmlDeviceGetHandleByUUID": lambda uuid: ("uuid", uuid),
        "nvmlDeviceGetName": lambda gpu: f"GPU {gpu[1]}",
        "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: 12_345,
        "nvmlDeviceGetClockInfo": lambda gpu, kind: {library.NVML_CLOCK_SM: 1980}[kind],
        "nvmlDeviceGetTemperature": lambda gpu, kind: {library.NVML_TEMPERATURE_GPU: 71}[kind],
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: (
            library.nvmlClocksThrottleReasonSwPowerCap | library.nvmlClocksThrottleReasonHwThermalSlowdown
        ),
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [Process(7, 100), Process(8, None), Process(9, 1000)],
    }
    for name, answer in says.items():
        monkeypatch.setattr(library, name, answer)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    gpu = Nvml()
    assert gpu.name == "GPU 1"
    assert gpu.joules() == pytest.approx(12.345)
    assert (gpu.clock_mhz(), gpu.temperature_c()) == (1980, 71)
    assert gpu.held_back() == ["GPU: hardware thermal slowdown"], "a power cap is its normal work"
    assert gpu.process_bytes({7, 8}) == 100
    assert gpu.process_bytes({8, 10}) is None, "a process that NVML gives no size is unknown, not 0"
    source, _ = open_source("auto", Path("/nowhere"), gpu=True)
    assert source is not None
    assert (source.name, source.scope, source.joules()) == ("nvml", "GPU 1", pytest.approx(12.345))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5e")
    assert Nvml().name == "GPU GPU-5e"

    def refuse(*_: object) -> None:
        raise unsupported

    for name in says:
        if name not in {"nvmlInit", "nvmlDeviceGetName"} and "Handle" not in name:
            monkeypatch.setattr(library, name, refuse)
    old = Nvml()
    assert (old.joules(), old.clock_mhz(), old.temperature_c(), old.held_back(), old.process_bytes({7})) == (
        None, None, None, [], None)  # fmt: skip
    with pytest.raises(Unsupported, match="counts no energy"):
        open_source("nvml", Path("/nowhere"), gpu=True)
    monkeypatch.setattr(library, "nvmlInit", refuse)
    with pytest.raises(NoNvml, match="NVML: "):
        Nvml()
