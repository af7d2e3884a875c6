"""Pictures of a report, by matplotlib, as SVG that stands inside a page.

matplotlib because its SVG needs no script: the page can forbid all of them, prints sharp, and a picture is some
10 KB (plotly.js alone is 4.5 MB). Colours are the page's own CSS variables, so that a dark page has dark pictures;
text stays text. Runs are told apart by colour and by mark.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = "osD^vPX*"
"""matplotlib's marks, in the order of `GLYPHS`."""
GLYPHS = "●■◆▲▼✚✖★"
WIDTH_IN, HEIGHT_IN = 4.9, 3.1
"""353 points wide, at most as many pixels as a phone shows, so that text of 10 points is legible there."""
TRADEOFF_IN = 3.6
SMALLEST, LARGEST = 4.0, 15.0
"""Diameters of marks whose area is a size, in points."""
LOG_FROM = 12.0
"""An axis of times is logarithmic when its largest value is so many times its smallest."""
STAGES = ("preprocess", "vision", "prefill", "decode")
_VARIABLES = {"ink": "#010203", "soft": "#010204", "grid": "#010205", "paper": "#010206"} | {
    f"{kind}{k}": f"#{first}02{k:02x}" for kind, first in (("series-", "11"), ("stage-", "21")) for k in range(8)
}
"""CSS variable -> the colour that stands for it until the SVG is written."""


def colour(name: str) -> str:
    """The stand-in for a CSS variable."""
    return _VARIABLES[name]


def series(k: int) -> dict[str, Any]:
    """Colour and mark of run k."""
    return {"color": colour(f"series-{k % 8}"), "marker": MARKS[k % 8]}


def tradeoff(
    points: Sequence[dict[str, Any]],
    *,
    x: str,
    x_label: str,
    y_label: str,
    front: Sequence[int],
    titles: Sequence[str],
    sized: bool = False,
    chance: float | None = None,
) -> str:
    """Accuracy against a cost, with the Pareto front; dominated runs are hollow, and each has its number.

    Args:
        points: accuracy and `x` of each run, with `accuracy_interval` and `<x>_interval` where known, and `<x>_least`,
            below which the device cannot come: a tick on a dotted line that leads to the mark.
        x: the key of the cost.
        x_label: with its unit.
        y_label: which accuracy.
        front: indices of the runs that none dominates.
        titles: of each point, shown by the browser under the pointer.
        chance: a fraction, where it is known.
        sized: marks have an area in proportion to `memory_bytes`; a cross where that is not known.
    """
    with _figure(height=TRADEOFF_IN) as (figure, axes):
        known = [k for k, p in enumerate(points) if p["accuracy"] is not None and p[x] is not None]
        on_front = sorted((k for k in front if k in known), key=lambda k: points[k][x])
        if len(on_front) > 1:
            axes.step(
                [points[k][x] for k in on_front],
                [100 * points[k]["accuracy"] for k in on_front],
                where="post",
                color=colour("soft"),
                linewidth=1,
                linestyle=(0, (4, 3)),
            )
        most = max((points[k]["memory_bytes"] or 0 for k in known), default=0)
        sizes = {}
        for k in known:
            p, style = points[k], series(k)
            at, across, up, least = p[x], p.get(f"{x}_interval"), p.get("accuracy_interval"), p.get(f"{x}_least")
            height = 100 * p["accuracy"]
            sizes[k] = 8.0
            if sized and p["memory_bytes"] is None:
                style["marker"] = "x"
            elif sized and most:
                sizes[k] = max(SMALLEST, LARGEST * math.sqrt(p["memory_bytes"] / most))
            if up is not None:
                axes.vlines(at, *(100 * v for v in up), color=style["color"], linewidth=1, alpha=0.45)
            if across is not None:
                axes.hlines(height, *across, color=style["color"], linewidth=1, alpha=0.45)
            if least is not None:
                axes.hlines(height, least, at, color=style["color"], linewidth=1, linestyle=":")
                axes.plot([least], [height], color=style["color"], marker="|", markersize=11, markeredgewidth=2)
            axes.plot(
                [at],
                [height],
                **style,
                markersize=sizes[k],
                markerfacecolor=style["color"] if k in front else colour("paper"),
                markeredgewidth=1.6,
                linestyle="none",
                gid=f"point-{k}",
            )
        if chance is not None:
            axes.axhline(100 * chance, color=colour("soft"), linewidth=1, linestyle=":")
            axes.annotate("chance", (0.99, 100 * chance), xycoords=("axes fraction", "data"), xytext=(0, 2),
                          textcoords="offset points", ha="right", color=colour("soft"), fontsize=9)  # fmt: skip
        _times(axes, [v for k in known for v in (points[k][x], points[k].get(f"{x}_least")) if v is not None])
        axes.set_xlabel(x_label)
        axes.set_ylabel(f"{y_label}, %")
        axes.margins(0.1, 0.1)
        axes.annotate("better ↖", (0.015, 0.985), xycoords="axes fraction", va="top", color=colour("soft"), fontsize=9)
        if len(points) > 1:
            _numbers(figure, axes, {k: (points[k][x], 100 * points[k]["accuracy"]) for k in known}, sizes)
        return _svg(figure, f"{y_label} against {x_label}", {f"point-{k}": titles[k] for k in known})


def _numbers(figure: Figure, axes: Axes, places: dict[int, tuple[float, float]], sizes: dict[int, float]) -> None:
    """Each mark's number beside it, where it covers the least of other marks and numbers.

    Args:
        figure: whose layout is settled here.
        axes: that hold the marks.
        places: of the marks, by run.
        sizes: their diameters in points.
    """
    figure.draw_without_rendering()
    scale = 72 / figure.dpi
    marks = {k: tuple(scale * v for v in axes.transData.transform(place)) for k, place in places.items()}
    taken: list[tuple[float, float, float]] = [(*marks[k], sizes[k] / 2) for k in places]
    for k in places:
        best = (math.inf, 0.0, 0.0)
        for step in range(64):
            turn = math.pi / 4 + step * math.pi / 8
            away = sizes[k] / 2 + 6 + 6 * (step // 16)
            x, y = away * math.cos(turn), away * math.sin(turn)
            covered = sum(max(0.0, r + 6 - math.hypot(marks[k][0] + x - a, marks[k][1] + y - b)) for a, b, r in taken)
            best = min(best, (round(covered, 1) + step / 100, x, y))
        taken.append((marks[k][0] + best[1], marks[k][1] + best[2], 5))
        axes.annotate(str(k + 1), places[k], best[1:], textcoords="offset points", ha="center", va="center",
                      color=colour(f"series-{k % 8}"), fontsize=10, fontweight="bold")  # fmt: skip


def stages(means: Sequence[dict[str, float]], names: Sequence[str]) -> str:
    """Mean time of each stage, stacked; means add up to the mean total, percentiles would not.

    Args:
        means: stage -> milliseconds, of each run.
        names: of the runs, short.
    """
    with _figure(height=1.0 + 0.36 * len(names)) as (figure, axes):
        titles = {}
        for row, (name, given) in enumerate(zip(names, means, strict=True)):
            left = 0.0
            for number, stage in enumerate(STAGES):
                if stage in given:
                    bar = axes.barh(row, given[stage], left=left, height=0.62, color=colour(f"stage-{number}"))
                    bar.patches[0].set_gid(f"bar-{row}-{number}")
                    titles[f"bar-{row}-{number}"] = f"{name}: {stage} {given[stage]:.3g} ms"
                    left += given[stage]
            axes.text(left, row, f" {left:.3g}", va="center", color=colour("ink"), fontsize=9)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.14)
        axes.set_xlabel("mean, ms a question")
        return _svg(figure, "mean time of each stage", titles)


def distribution(
    curves: Sequence[tuple[Sequence[float], Sequence[float]]], numbers: Sequence[int], x_label: str
) -> str:
    """Empirical distribution functions: which share of the questions took so long or less.

    Args:
        curves: times and shares of each run, both ascending.
        numbers: which run each curve is of.
        x_label: with its unit.
    """
    with _figure() as (figure, axes):
        for k, (times, shares) in zip(numbers, curves, strict=True):
            style = series(k)
            axes.plot(times, [100 * s for s in shares], drawstyle="steps-post", color=style["color"], linewidth=1.6)
            middle = len(times) // 2
            axes.plot([times[middle]], [100 * shares[middle]], **style, markersize=6, linestyle="none")
        _times(axes, [t for times, _ in curves for t in (times[0], times[-1])])
        axes.set_yticks([0, 25, 50, 75, 90, 100])
        axes.set_ylim(0, 102)
        axes.set_xlabel(x_label)
        axes.set_ylabel("questions, %")
        return _svg(figure, f"distribution of {x_label}", {})


def levels(
    curves: Sequence[dict[str, Any]],
    numbers: Sequence[int],
    chance: float | None = None,
    within: tuple[float, float] | None = None,
) -> str:
    """Accuracy against the level of a perturbation, with intervals.

    Args:
        curves: `levels` of each: level, accuracy, interval.
        numbers: which mark each curve has.
        chance: a fraction, where it is known.
        within: accuracies between which all pictures of a page are drawn, so that the eye can compare them.
    """
    with _figure() as (figure, axes):
        if within is not None:
            axes.set_ylim(100 * within[0], 100 * within[1])
        for k, curve in zip(numbers, curves, strict=True):
            rows, style = curve["levels"], series(k)
            places = [r["level"] + 0.05 * (k - (len(curves) - 1) / 2) for r in rows]
            for place, r in zip(places, rows, strict=True):
                if r["interval"] is not None:
                    axes.vlines(place, *(100 * v for v in r["interval"]), color=style["color"], linewidth=1, alpha=0.55)
            axes.plot(places, [100 * r["accuracy"] for r in rows], **style, markersize=6, linewidth=1.5)
        if chance is not None:
            axes.axhline(100 * chance, color=colour("soft"), linewidth=1, linestyle=":")
        shown = sorted({r["level"] for c in curves for r in c["levels"]})
        axes.set_xticks(shown, ["clean" if level == 0 else str(level) for level in shown])
        axes.set_xlabel("level")
        axes.set_ylabel("accuracy, %")
        return _svg(figure, "accuracy against the level", {})


def trace(lines: Sequence[dict[str, Any]], y_label: str) -> str:
    """What was seen of the machine over a run; the GPU's lines are dashed.

    Args:
        lines: run, of ('CPU', 'GPU'), seconds and values of each.
        y_label: with its unit.
    """
    with _figure() as (figure, axes):
        for line in lines:
            style = series(line["run"])
            axes.plot(
                line["seconds"],
                line["values"],
                color=style["color"],
                linewidth=1.4,
                linestyle="--" if line["of"] == "GPU" else "-",
            )
            axes.plot(line["seconds"][-1:], line["values"][-1:], **style, markersize=6, linestyle="none")
        axes.ticklabel_format(useOffset=False)
        axes.set_xlabel("seconds since the engine began to load")
        axes.set_ylabel(y_label)
        return _svg(figure, f"{y_label} over the run", {})


def _times(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis where values spread widely, with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if values and min(values) > 0 and max(values) / min(values) >= LOG_FROM:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))


@contextmanager
def _figure(height: float = HEIGHT_IN) -> Iterator[tuple[Figure, Axes]]:
    """A figure with one pair of axes, in the report's style; the style ends with the block."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: Any = {
        "axes.edgecolor": colour("soft"),
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.labelcolor": colour("ink"),
        "axes.linewidth": 0.8,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.unicode_minus": True,
        "figure.facecolor": "none",
        "font.family": "DejaVu Sans",
        "font.size": 10.0,
        "grid.color": colour("grid"),
        "grid.linewidth": 0.7,
        "svg.fonttype": "none",
        "svg.hashsalt": "edgebench",
        "text.color": colour("ink"),
        "text.parse_math": False,
        "xtick.color": colour("ink"),
        "ytick.color": colour("ink"),
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(WIDTH_IN, height), layout="constrained")
        yield figure, figure.subplots()


_counter = iter(range(2**31))


def _svg(figure: Figure, title: str, titles: dict[str, str]) -> str:
    """The figure as one `<svg>` element: no metadata, no style sheet, ids of its own, the page's colours."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # Letters that DejaVu lacks are drawn by the browser all the same: text stays text.
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<style.*?</style>|<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'^<svg[^>]*?(viewBox="[^"]*")[^>]*>', rf'<svg \1 role="img" aria-label="{escape(title)}">', text)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    for gid, shown in titles.items():
        text = text.replace(f'<g id="{gid}">', f'<g id="{gid}"><title>{escape(shown)}</title>')
    prefix = f"f{next(_counter)}-"
    text = re.sub(r'( id=")', rf"\1{prefix}", text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\1{prefix}", text).replace("xlink:href", "href")
    for name, stand_in in _VARIABLES.items():
        text = text.replace(stand_in, f"var(--{name})")
    return re.sub(r"\n\s*", "\n", text).strip()


def quantiles(times_ms: Sequence[float], most: int = 200) -> Iterator[tuple[float, float]]:
    """At most so many points of an empirical distribution function, the smallest and the largest among them."""
    ordered = sorted(times_ms)
    n = len(ordered)
    for k in range(min(n, most)):
        rank = round(k * (n - 1) / max(1, min(n, most) - 1))
        yield ordered[rank], (rank + 1) / n
