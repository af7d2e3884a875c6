"""Machines as trees of files: what the kernel shows of a board, written into a folder."""

from __future__ import annotations

from pathlib import Path


def write(root: Path, files: dict[str, object]) -> Path:
    """Each file with its content and a newline."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def cpu_stat(*cores: tuple[int, int, int]) -> str:
    """/proc/stat of cores with (user, idle, steal) in hundredths of a second."""
    rows = [f"cpu{n} {user} 0 0 {idle} 50 0 0 {steal} 0 0" for n, (user, idle, steal) in enumerate(cores)]
    return "\n".join(["cpu 1 1 1 1 1 1 1 1 0 0", *rows, "intr 1 2 3"])


def intel(root: Path, *, package_uj: int = 5_000_000, dram_uj: int = 1_000_000) -> Path:
    """A server of two cores with RAPL."""
    rapl = "sys/class/powercap/intel-rapl"
    return write(
        root,
        {
            "proc/stat": cpu_stat((1000, 5000, 0), (2000, 4000, 100)),
            "proc/meminfo": "MemTotal: 8000 kB\nMemAvailable:    4000 kB",
            "proc/self/cgroup": "0::/box",
            "sys/fs/cgroup/box/memory.peak": 123456,
            f"{rapl}:0/name": "package-0",
            f"{rapl}:0/energy_uj": package_uj,
            f"{rapl}:0/max_energy_range_uj": 10_000_000,
            f"{rapl}:0:0/name": "core",
            f"{rapl}:0:0/energy_uj": 3,
            f"{rapl}:0:1/name": "dram",
            f"{rapl}:0:1/energy_uj": dram_uj,
            f"{rapl}:0:1/max_energy_range_uj": 10_000_000,
            f"{rapl}:1/name": "psys",
            f"{rapl}:1/energy_uj": 99,
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": 1_800_000,
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": 2_400_000,
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": 3_400_000,
            "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": 4,
            "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": 3,
            "sys/class/thermal/thermal_zone0/temp": 41_000,
            "sys/class/thermal/thermal_zone1/temp": -274_000,
            "sys/class/hwmon/hwmon0/temp1_input": 55_500,
        },
    )


def jetson(root: Path) -> Path:
    """An Orin Nano: 5 V and 1 A at VDD_IN, of which the other rails are parts."""
    chip = "sys/class/hwmon/hwmon1"
    return write(
        root,
        {
            f"{chip}/name": "ina3221",
            **{f"{chip}/in{n}_label": label for n, label in ((1, "VDD_IN"), (2, "VDD_CPU_GPU_CV"), (3, "VDD_SOC"))},
            **{f"{chip}/in{n}_input": 5000 for n in (1, 2, 3)},
            **{f"{chip}/curr{n}_input": milliamperes for n, milliamperes in ((1, 1000), (2, 400), (3, 300))},
            f"{chip}/in7_label": "sum of shunt voltages",
            "sys/class/hwmon/hwmon2/oc1_event_cnt": 2,
            "sys/class/devfreq/17000000.gpu/cur_freq": 1_020_000_000,
            "var/lib/nvpmodel/status": "pmode:0002",
            "etc/nvpmodel.conf": "< POWER_MODEL ID=1 NAME=25W >\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >",
        },
    )


def agx_orin(root: Path) -> Path:
    """An AGX Orin: two chips, no rail of the whole; 10 + 4 + 6 W, and 1 W inside the 6."""
    labels = {"hwmon3": ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"), "hwmon4": ("NC", "VDDQ_VDD2_1V8AO", "NC")}
    watts = {"VDD_GPU_SOC": 10, "VDD_CPU_CV": 4, "VIN_SYS_5V0": 6, "VDDQ_VDD2_1V8AO": 1, "NC": 50}
    files: dict[str, object] = {}
    for chip, names in labels.items():
        files[f"sys/class/hwmon/{chip}/name"] = "ina3221"
        for n, label in enumerate(names, 1):
            files[f"sys/class/hwmon/{chip}/in{n}_label"] = label
            files[f"sys/class/hwmon/{chip}/in{n}_input"] = 10_000
            files[f"sys/class/hwmon/{chip}/curr{n}_input"] = 100 * watts[label]
    return write(root, files)
