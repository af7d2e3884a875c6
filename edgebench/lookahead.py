"""An iterator whose next value can be made before it is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

T = TypeVar("T")


class Lookahead(Generic[T]):
    """One value ahead, where somebody asks for it."""

    def __init__(self, values: Iterable[T]) -> None:
        self._values = iter(values)
        self._held: list[T] = []

    def fetch(self) -> None:
        """Make the next value now; nothing where it is there already, or there is none."""
        if not self._held:
            self._held.extend([value for value in [next(self._values, None)] if value is not None])

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        return self._held.pop() if self._held else next(self._values)
