"""Forensics-Bench in part, or asked another question: a stratified subset, the attribution protocol."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from edgebench.errors import UsageError
from edgebench.subset import Subset, draw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgebench.benches.attribution import Attribution
    from edgebench.benches.base import Sample
    from edgebench.benches.forensics import Forensics
    from edgebench.benches.taxonomy import Category
    from edgebench.manifest import Kind
    from edgebench.records import DataFact


class Selected:
    """Some of a bench's questions, in its order."""

    def __init__(
        self,
        bench: Forensics,
        *,
        subset: int | None = None,
        seed: int = 0,
        limit: int | None = None,
        attribution: Attribution | None = None,
    ) -> None:
        """Choose.

        Args:
            bench: all questions.
            subset: how many to draw, by category; None takes all.
            seed: of the subset.
            limit: only the first ones of what is chosen.
            attribution: asks the binary questions of forgeries which model made them; others are left out.

        Raises:
            UsageError: nothing is left.
        """
        self.name = bench.name
        self._bench, self._attribution = bench, attribution
        numbers = list(range(bench.count()))
        slugs = bench.slugs()
        if attribution is not None:
            numbers = [n for n in numbers if attribution.takes(slugs[n])]
        self.subset: Subset | None = None
        if subset is not None:
            names = bench.ids()
            ids = {names[n]: n for n in numbers}
            self.subset = draw(list(ids), [slugs[n] for n in ids.values()], subset, seed)
            numbers = [ids[i] for i in self.subset.ids]
        self._numbers = numbers[:limit]
        self.asked = Counter(slugs[n] for n in self._numbers)
        if not numbers:
            raise UsageError("no question is left to ask: the data hold no binary question of a forgery")

    @property
    def protocol(self) -> str | None:
        """For a run's settings."""
        return None if self._attribution is None else self._attribution.label

    def data(self) -> DataFact:
        """Of the whole file, with the number of questions that are asked."""
        return replace(self._bench.data(), questions=len(self._numbers))

    def count(self) -> int:
        """How many are asked."""
        return len(self._numbers)

    def samples(self) -> Iterator[Sample]:
        """They, in file order."""
        for place, sample in enumerate(self._bench.samples(self._numbers)):
            yield sample if self._attribution is None else self._attribution.put(place, sample)

    def suits(self, kind: Kind, sample: Sample) -> bool:
        """As the bench says."""
        return self._bench.suits(kind, sample)

    def category(self, slug: str) -> Category:
        """As the bench says."""
        return self._bench.category(slug)
