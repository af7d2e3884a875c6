"""What `edgebench doctor` found, as tables."""

from __future__ import annotations

from typing import Any

from edgebench.report.tables import UNKNOWN, Table, mebibytes


def doctor_tables(found: dict[str, Any]) -> list[Table]:
    """Engines, extras, the host.

    Args:
        found: as `edgebench.doctor.diagnose` gives it.
    """
    tables = [_engines(found["engines"])]
    if found["refused"]:
        tables.append(Table("Refused engines of other packages", ("name", "reason"), tuple(found["refused"].items())))
    if found["extras"] is not None:
        tables.append(_extras(found["extras"]))
    return [*tables, _host(found), _devices(found)]


def _engines(engines: dict[str, dict[str, Any]]) -> Table:
    rows = tuple(
        (
            name,
            "yes" if e["runs"] else "no",
            UNKNOWN if e["builds"] is None else "yes" if e["builds"] else "no",
            ", ".join(name for name, reason in e["devices"].items() if reason is None) or UNKNOWN,
            ", ".join(f"{k} {v}" for k, v in e["versions"].items()) or UNKNOWN,
            "; ".join(_troubles(e)),
        )
        for name, e in engines.items()
    )
    columns = ("engine", "runs", "builds", "on", "versions", "why not, and what helps")
    return Table("Engines", columns, rows, "builds: whether it can compile for a device; '–' where it compiles nothing")


def _troubles(engine: dict[str, Any]) -> list[str]:
    """Why it cannot, why not on some device, and the line that helps."""
    lines = [] if engine["reason"] is None else [engine["reason"]]
    lines += [f"{device}: {why}" for device, why in engine["devices"].items() if why not in {None, engine["reason"]}]
    return lines + ([] if engine["install"] is None else [engine["install"]])


def _extras(extras: dict[str, dict[str, Any]]) -> Table:
    rows = tuple(
        (
            name,
            ", ".join(f"{k} {v}" for k, v in e["installed"].items()) or UNKNOWN,
            ", ".join(e["missing"]) or "nothing",
            e["install"] if e["missing"] else "",
        )
        for name, e in extras.items()
    )
    return Table("Extras", ("extra", "installed", "missing", "what helps"), rows)


def _host(found: dict[str, Any]) -> Table:
    host, cpu, cache = found["host"], found["cpu"], found["cache"]
    features = cpu["features"]
    cores = (
        f"{cpu['physical_cores'] or UNKNOWN} physical, {cpu['logical_cores'] or UNKNOWN} logical, "
        f"{cpu['usable_cores'] or UNKNOWN} usable"
        + ("" if cpu["quota_cores"] is None else f", limited to the time of {cpu['quota_cores']:g}")
        + "".join(f", {k}={v}" for k, v in cpu["thread_variables"].items())
    )
    limit = found["memory"]["address_space_limit_bytes"]
    versions = {"edgebench": host["edgebench"], "python": host["python"], **host["packages"]}
    rows = [
        ("machine", f"{host['device_model'] or host['cpu'] or UNKNOWN}, {host['machine']}, {host['system']}"),
        ("cores", cores),
        ("CPU features", UNKNOWN if features is None else ", ".join(k for k, has in features.items() if has) or "none"),
        ("without", UNKNOWN if features is None else ", ".join(k for k, has in features.items() if not has) or "none"),
        ("governor", cpu["governor"] or UNKNOWN),
        ("power mode", found["power_mode"] or UNKNOWN),
        (
            "memory",
            f"{mebibytes(host['memory_bytes'])}, {mebibytes(found['memory']['available_bytes'])} available"
            + ("" if limit is None else f", a process may take {mebibytes(limit)} of addresses"),
        ),
        ("cache", f"{cache['folder']}, {mebibytes(cache['free_bytes'])} free of {mebibytes(cache['total_bytes'])}"),
        ("pixels", found["pixels"]),
        ("versions", ", ".join(f"{k} {v}" for k, v in versions.items())),
    ]
    return Table("Host", ("", ""), tuple(rows))


def _devices(found: dict[str, Any]) -> Table:
    nvidia = found["nvidia"]
    rows = [
        (
            gpu["name"],
            f"{mebibytes(gpu['memory_bytes'])}, {mebibytes(gpu['free_bytes'])} free, "
            f"compute capability {gpu['compute_capability'] or UNKNOWN}, "
            f"{UNKNOWN if gpu['power_limit_w'] is None else format(gpu['power_limit_w'], 'g')} W at most",
        )
        for gpu in nvidia["gpus"]
    ]
    driver = f"driver {nvidia['driver'] or UNKNOWN}, CUDA {nvidia['cuda'] or UNKNOWN}"
    rows.append(("NVIDIA", driver + ("" if nvidia["unknown"] is None else f" ({nvidia['unknown']})")))
    rows += [(path, driver) for path, driver in found["device_files"].items()]
    return Table("Devices", ("device", "facts"), tuple(rows))
