"""A caption as the token ids that a classifier of text reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgebench.errors import ArtifactError, one_line

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class CaptionTokens:
    """The tokenizer of one classifier of text."""

    def __init__(self, tokenizer: Path, longest: int) -> None:
        """Load it.

        Raises:
            ArtifactError: it is damaged.
        """
        from tokenizers import Tokenizer

        try:
            self._tokenizer: Any = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # the library raises plain Exception
            raise ArtifactError(f"is no tokenizer: {one_line(error)}", where=tokenizer) from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(longest)

    def ids(self, text: str) -> NDArray[np.int64]:
        """int64 [tokens], start and end tokens included; what is too long is cut off behind."""
        return np.array(self._tokenizer.encode(text).ids, dtype=np.int64)
