"""The house: imports point down, the command line is light, and what is shipped loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgebench.agent.instructions import load_instructions
from edgebench.benches import BENCHES
from edgebench.cli.main import COMMANDS
from edgebench.config import shipped_yaml
from edgebench.convert import FORMS
from edgebench.engines import ENGINES
from edgebench.errors import EdgebenchError, exit_codes
from edgebench.export import FAMILIES
from edgebench.profiles import load_profile
from edgebench.prompts.styles import STYLES
from edgebench.recipes import load_recipe
from edgebench.registry import load

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "edgebench"
LAYERS = [
    ["errors", "__init__"],
    ["config", "registry", "places", "host_files", "wording", "work"],
    [
        *("manifest", "environment", "profiles", "cache", "forged", "endpoint", "devices"),
        *("trace", "lock", "lines", "windows", "subset", "lookahead"),
    ],
    ["sensors", "shapes"],
    ["recipes", "records"],
    ["media", "metrics.intervals", "metrics.latency", "metrics.binary", "metrics.paired"],
    ["demo"],
    ["benches"],
    ["prompts", "metrics.forensics"],
    ["answers"],
    ["metrics"],
    ["checkpoints"],
    ["engines", "export", "pack", "agent", "sharing"],
    ["runner", "artifacts", "apart", "plan", "attended"],
    ["batches", "sweep"],
    ["cells"],
    ["worker", "calls", "report", "convert", "estimate", "host_peaks", "protocols"],
    ["desk"],
    ["offline", "ahead"],
    ["pipeline", "doctor", "explain"],
    ["synthetic", "speeds", "sweeps"],
    ["cli"],
    ["__main__"],
]
"""From the ground up. A module imports from lower rows, and from its own package."""
HEAVY = ("torch", "transformers", "onnxruntime", "onnx", "numpy", "PIL", "tokenizers", "rich", "jinja2", "yaml")


def place(module: str) -> int:
    """The row of a module, by the longest name that fits."""
    best, row = -1, None
    for number, names in enumerate(LAYERS):
        for name in names:
            if (module == name or module.startswith(name + ".")) and len(name) > best:
                best, row = len(name), number
    assert row is not None, f"{module} has no place in the house"
    return row


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports(path: Path) -> set[str]:
    """Modules of the package that a file imports when it runs; type checking left out."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "edgebench":
            base = node.module.removeprefix("edgebench").lstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                found.add(inner if inner in modules() else base or "__init__")
    return found


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module: str) -> None:
    for imported in imports(modules()[module]):
        same = imported.split(".")[0] == module.split(".")[0] and place(imported) <= place(module)
        assert same or place(imported) < place(module), f"{module} imports {imported}, which is above or beside it"
    if module.startswith("export"):
        assert not [i for i in imports(modules()[module]) if i.startswith("engines")]
    if module.startswith("engines"):
        assert not [i for i in imports(modules()[module]) if i.startswith("export")]


def test_help_loads_no_framework_and_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "edgebench", "--help"], capture_output=True, text=True, check=True
    )
    loaded = {
        line.split("|")[-1].strip().split(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "click" in loaded
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize(
    "module", ["edgebench.pipeline", "edgebench.cli.run", "edgebench.worker", "edgebench.metrics.summary"]
)
def test_a_run_needs_no_torch(module: str) -> None:
    code = f"import sys, {module}; bad = {{'torch', 'transformers', 'onnx', 'onnxscript'}} & set(sys.modules); assert not bad, bad"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_row_of_every_table_loads() -> None:
    for target, _ in (*BENCHES.values(), *ENGINES.values(), *COMMANDS.values(), *FORMS.values()):
        assert load(target)
    pytest.importorskip("torch")
    for target in FAMILIES.values():
        assert load(target)


@pytest.mark.parametrize("name", shipped_yaml("recipes"))
def test_every_recipe_loads(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.family in FAMILIES
    if recipe.prompt is not None:
        assert recipe.prompt.style in STYLES
    if recipe.network is not None:
        pytest.importorskip("torch")
        from edgebench.checkpoints.networks import NETWORKS

        assert recipe.network in NETWORKS
    if recipe.encoder is not None:
        pytest.importorskip("torch")
        from edgebench.checkpoints.encoders import ENCODERS

        assert recipe.feature in {None, *ENCODERS[recipe.encoder].features}


@pytest.mark.parametrize("name", shipped_yaml("instructions"))
def test_every_set_of_instructions_loads(name: str) -> None:
    assert load_instructions(name).name == name


@pytest.mark.parametrize("name", shipped_yaml("profiles"))
def test_every_profile_loads(name: str) -> None:
    assert load_profile(name).name == name


def test_exit_codes_are_one_per_family() -> None:
    codes = [kind.exit_code for kind in EdgebenchError.__subclasses__()]
    assert len(codes) == len(set(codes))
    assert {0, 1, 2} <= {code for code, _ in exit_codes()}


def test_links_lead_into_the_package() -> None:
    for name in ("export", "engines"):
        link = ROOT / name
        if link.is_symlink():
            assert not str(link.readlink()).startswith("/")
            assert link.resolve() == PACKAGE / name
        else:
            assert link.read_text().strip() == f"edgebench/{name}"


def test_files_are_of_one_subject() -> None:
    long = {
        p.relative_to(ROOT).as_posix(): n for p in PACKAGE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 420
    }
    assert not long


def test_the_project_speaks_of_itself_alone() -> None:
    """No path of a machine and no host of a package registry in any file."""
    words = ["/wo" + "rk/", "/ro" + "ot/", "pypi" + ".org", "pythonhosted" + ".org"]
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\0")
    for name in filter(None, tracked):
        path = ROOT / name
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".yaml", ".json", "", ".sh"}:
            text = path.read_text(errors="replace")
            assert not [w for w in words if re.search(rf"(^|[^A-Za-z0-9_.]){re.escape(w)}", text)], name
