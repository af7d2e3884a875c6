"""What a layout's `take` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgebench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgebench.recipes import Recipe

NOT_MEASURED = "imported; parity with the checkpoint was not measured"
"""Note of a manifest without parity."""


@dataclass(frozen=True)
class ImportRequest:
    """One import."""

    folder: Path
    say: Callable[[str], None]
    """Called with the name of each step as it begins."""
    recipe: Recipe | None = None
    """How the model is asked, and the bounds of its parity; None: the layout's own way."""
    variant: str = ""
    """Of every graph: fp16, quantized, q4, ...; empty: the files without one."""
    variants: dict[str, str] = field(default_factory=dict)
    """Another variant for one graph of several, by its name in the manifest."""
    weights: Path | None = None
    """The checkpoint, to measure parity with; None leaves parity unknown."""
    forged: tuple[str, ...] = ()
    """Labels of a classifier that mean forged; empty: read from the labels' words."""

    @property
    def name(self) -> str:
        """Of the artifact: the recipe's, or the folder's own."""
        return self.folder.resolve().name if self.recipe is None else self.recipe.name

    def refuse(self, *options: str) -> None:
        """Refuse options that mean nothing for this layout.

        Raises:
            UsageError: one of them was given.
        """
        given = {
            "--variant": bool(self.variant),
            "--vision, --embed and --decoder": bool(self.variants),
            "--forged": bool(self.forged),
        }
        for option in options:
            if given[option]:
                raise UsageError(f"{option}: this folder's layout has no use for it", where=self.folder)

    def expect(self, family: str) -> None:
        """Refuse a recipe of another family.

        Raises:
            UsageError: it is of another one.
        """
        if self.recipe is not None and str(self.recipe.family) != family:
            raise UsageError(
                f"the recipe {self.recipe.name!r} is of the family {self.recipe.family!r}, this folder is of {family!r}",
                where=self.folder,
            )
