"""Names of several runs, short and never twice the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

from edgebench.report.tables import label


def labels(summaries: list[dict[str, Any]]) -> list[str]:
    """Model, precision, engine, and what else tells runs apart; a number where nothing does."""
    names = [label(s) for s in summaries]
    for fact in (_perturbation, _provider, _dialect, _bench, _device, _folder):
        again = Counter(names)
        shown = [fact(s) for s in summaries]
        names = [
            f"{name}, {extra}" if again[name] > 1 and extra and _tells_apart(name, names, shown) else name
            for name, extra in zip(names, shown, strict=True)
        ]
    again = Counter(names)
    return [f"{name} #{k}" if again[name] > 1 else name for k, name in enumerate(names, 1)]


TYPES = {
    "REAL": "real",
    "ES": "entire synthesis",
    "SPF": "spoofing",
    "FE": "face editing",
    "FR": "face reenactment",
    "FSM": "face swap, several faces",
    "FSS": "face swap, one face",
    "FT": "face transfer",
    "ST": "style translation",
    "TAM": "text attribute manipulation",
    "TS": "text swap",
    "CM": "copy-move",
    "RM": "removal",
    "SPL": "splicing",
    "IE": "image enhancement",
    "OOC": "out of context",
}
TASKS = {"BC": "real or forged", "SLS": "which mask", "SLD": "which boxes", "TL": "which frames"}


def spelled(code: str) -> str:
    """A task or forgery type of Forensics-Bench with its code in words, such as 'ES: entire synthesis'."""
    words = [TYPES.get(part) or TASKS.get(part) for part in code.split("&")]
    known = [word for word in words if word is not None]
    return f"{code}: {' and '.join(known)}" if len(known) == len(words) and known != [code.lower()] else code


def distinct(names: list[str]) -> list[str]:
    """The same names without the words that all of them share, where what is left still tells them apart."""
    if len(names) < 2:
        return names
    words = [name.replace(" / ", " ").replace(", ", " ").split(" ") for name in names]
    shared = set(words[0]).intersection(*words[1:])
    found = [" ".join(w for w in name if w not in shared) for name in words]
    return found if len(set(found)) == len(found) and all(found) else names


def short(names: list[str]) -> list[str]:
    """Names for the marks of a picture: 22 characters at most."""
    return [n if len(n) <= 22 else f"{n[:19]}… {k}" for k, n in enumerate(distinct(names), 1)]


def _tells_apart(name: str, names: list[str], shown: list[str]) -> bool:
    return len({s for n, s in zip(names, shown, strict=True) if n == name}) > 1


def _perturbation(summary: dict[str, Any]) -> str:
    return str(summary["settings"]["perturbation"] or "")


def _provider(summary: dict[str, Any]) -> str:
    return str(summary["settings"]["provider"])


def _dialect(summary: dict[str, Any]) -> str:
    return str((summary["artifact"] or {}).get("dialect") or "")


def _bench(summary: dict[str, Any]) -> str:
    return str(summary["settings"]["bench"])


def _device(summary: dict[str, Any]) -> str:
    host = summary["host"] or {}
    return str(host.get("device_model") or host.get("cpu") or "")


def _folder(summary: dict[str, Any]) -> str:
    return str(summary["run"])
