"""Builds the C extension `edgebench.media._pixels` into the wheel, or leaves it out where there is no compiler.

edgebench gives the same pixels without it, through Pillow, only slower. EDGEBENCH_BUILD=require makes a failure an
error (for whoever publishes wheels), EDGEBENCH_BUILD=skip leaves the extension out.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "edgebench/media/_pixels.c"
MODULE = "edgebench.media._pixels"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles before the wheel is filled; an editable installation gets the extension into the source tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, or say why not."""
        wanted = os.environ.get("EDGEBENCH_BUILD", "")
        if wanted == "skip":
            return
        try:
            built = self._compile()
        except Exception as error:
            if wanted == "require":
                raise
            self.app.display_warning(f"no C extension, Pillow makes the pixels instead: {error}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(f"/{built.relative_to(self.root).as_posix()}")

    def _compile(self) -> Path:
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        # No contraction of a * b + c: coefficients have to round as Pillow's do.
        flags = (
            ["/O2"]
            if sys.platform == "win32"
            else ["-std=c11", "-O3", "-g0", "-ffp-contract=off", "-fvisibility=hidden"]
        )
        root = Path(self.root)
        extension = Extension(MODULE, [str(root / SOURCE)], extra_compile_args=flags)
        command = build_ext(Distribution({"name": "edgebench", "ext_modules": [extension]}))
        with tempfile.TemporaryDirectory() as folder:
            command.build_temp, command.build_lib = folder, folder
            command.ensure_finalized()
            command.run()
            made = Path(command.get_ext_fullpath(MODULE))
            target = root / Path(*MODULE.split(".")[:-1]) / made.name
            partial = target.with_suffix(".partial")
            partial.write_bytes(made.read_bytes())
            partial.replace(target)
        return target
