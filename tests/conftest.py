"""Fixtures: artifacts that many tests share are exported once a session, by the test process that asks first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock

from tests import twins

if TYPE_CHECKING:
    from collections.abc import Callable

SHARED = Path(os.environ.get("EDGEBENCH_SHARED", Path(__file__).resolve().parents[2] / "shared"))
"""Real detectors and photographs, where they are at hand."""


@dataclass
class Result:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Its stdout as one JSON object."""
        value: dict[str, Any] = json.loads(self.out)
        return value


class Cli:
    """The command line as a person drives it: a process of its own in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **{k: v for k, v in os.environ.items() if k not in {"EDGEBENCH_DATA", "LMUData", "EDGEBENCH_DEBUG"}},
            "HOME": str(folder),
            "EDGEBENCH_CACHE": str(folder / "cache"),
            "HF_HUB_OFFLINE": "1",
            "EDGEBENCH_PROFILE": "cpu-busy",  # two test processes share the cores
        }

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-W", "error::DeprecationWarning:edgebench", "-m", "edgebench", *map(str, arguments)]

    def __call__(self, *arguments: object, **extra: str) -> Result:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env={**self.environment, **extra},
            capture_output=True,
            text=True,
            timeout=600,
            stdin=subprocess.DEVNULL,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Result(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        """The same, left running."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def rarely(*values: object) -> object:
    """A case that is asked only with EDGEBENCH_TESTS=all: its neighbours take the same road."""
    left_out = os.environ.get("EDGEBENCH_TESTS") != "all"
    return pytest.param(*values, marks=pytest.mark.skipif(left_out, reason="asked with EDGEBENCH_TESTS=all"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real detectors and photographs; the test is skipped where it is not at hand."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the real detectors and photographs are not at hand")
    return SHARED / "data"


@pytest.fixture(scope="session")
def reference_tables() -> Path:
    """The folder of what others state, as data."""
    return Path(__file__).parent / "reference"


@pytest.fixture(scope="session")
def published_tables() -> Path:
    """The folder of published numbers, which is the package's."""
    return Path(__file__).parents[1] / "edgebench" / "data" / "published"


@pytest.fixture(scope="session")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all test processes of the session share."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "together"
    folder.mkdir(exist_ok=True)
    return folder


def once(target: Path, make: Callable[[Path], object]) -> Path:
    """What is there, or is made now; others that ask for it wait."""
    with FileLock(f"{target}.lock"):
        if not target.exists():
            partial = target.with_name(f"{target.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            make(partial)
            partial.rename(target)
    return target


@pytest.fixture(scope="session")
def twin(together: Path) -> Path:
    """A LLaVA checkpoint with random weights."""
    pytest.importorskip("transformers")
    return once(together / "twin", twins.write_llava)


def exported(recipe: str, weights: Path | None, output: Path) -> Path:
    """An artifact in fp32, without a process of its own."""
    from edgebench.export.run import export
    from edgebench.recipes import load_recipe

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = None if weights is None else str(weights)
        export(
            load_recipe(recipe), weights=given, precision="fp32", dialect="ort", output=output, say=lambda step: None
        )
    return output


@pytest.fixture(scope="session")
def demo_artifact(together: Path) -> Path:
    """The embedded model, exported: small, and as real as any."""
    pytest.importorskip("transformers")
    return once(together / "demo", lambda target: exported("edgebench-demo", None, target))


@pytest.fixture(scope="session")
def mini_cache(together: Path) -> Path:
    """A cache that holds the mini benchmark and nothing else: its one file is the TSV."""
    for package in ("cv2", "skimage", "sklearn"):
        pytest.importorskip(package)
    from edgebench.benches.mini import ForensicsMini

    def make(target: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EDGEBENCH_CACHE", str(target))
            ForensicsMini.open(None)

    return once(together / "mini", make)


class Exports:
    """Artifacts of the twin, each exported once, by the command line."""

    def __init__(self, folder: Path, twin: Path) -> None:
        self.folder, self.twin = folder, twin
        self.cli = Cli(folder)

    def __call__(self, precision: str = "fp32", dialect: str = "ort") -> Path:
        def make(target: Path) -> None:
            done = self.cli(
                "export", "llava", "--weights", self.twin, f"--{precision}", "--dialect", dialect, "-o", target
            )
            assert done.code == 0, done.err

        return once(self.folder / f"{precision}-{dialect}", make)


@pytest.fixture(scope="session")
def exports(together: Path, twin: Path) -> Exports:
    folder = together / "exports"
    folder.mkdir(exist_ok=True)
    return Exports(folder, twin)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of tests/brittle, as pip builds and installs it."""
    folder = tmp_path_factory.mktemp("brittle") / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(folder), str(Path(__file__).parent / "brittle")], check=True
    )
    return folder


def path(*folders: Path) -> str:
    """PYTHONPATH with these folders before its own."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture
def tsv(tmp_path: Path) -> Path:
    """Forty questions in the published form, all four tasks."""
    return twins.write_tsv(tmp_path / "ForensicsBench.tsv", twins.rows(40))
