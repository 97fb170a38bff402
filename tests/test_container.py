"""The image of the Dockerfile; and, without an engine, its steps: a wheel, installed read-only, run without a home."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hippo import compiling

from .conftest import ROOT

STEPS = (ROOT / "Dockerfile").read_text()
PLAN = ("plan", "--model", "llama-3-8b", "--cluster", "toy", "--planner", "even", "--json")
NOBODY = 65534


def engine() -> tuple[str, str]:
    """A container engine that answers, and why there is none."""
    for name in ("docker", "podman"):
        if shutil.which(name) is not None:
            asked = subprocess.run([name, "info"], capture_output=True, text=True, check=False)
            if asked.returncode == 0:
                return name, ""
    return "", "no container engine answers (docker, podman)"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the Dockerfile builds, from the files that it copies."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    first_stage = STEPS.split("\nFROM ")[1]
    for copied, to in re.findall(r"^COPY (.+) (\S+)$", first_stage, flags=re.MULTILINE):
        for name in copied.split():
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, source / to)
    step = re.search(r"^RUN pip (wheel .+) --wheel-dir \S+ \.$", first_stage, flags=re.MULTILINE)
    assert step is not None
    pip = [sys.executable, "-m", "pip", *step[1].split(), "--no-build-isolation", "--wheel-dir", out, source]
    built = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (found,) = out.glob("hippo_planner-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheel unpacked, and nobody may write there."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    change_mode(folder, 0o555)
    yield folder
    change_mode(folder, 0o755)


def change_mode(folder: Path, mode: int) -> None:
    for each in (folder, *folder.rglob("*")):
        each.chmod(mode)


def run(site: Path, folder: Path, *words: str, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """``hippo`` from the installed files alone, without a home, as nobody where that is possible."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "HOME": "/nonexistent", **settings}
    python = Path(sys.executable).resolve()
    for_all = all(each.stat().st_mode & 0o001 for each in (python, *python.parents, *folder.parents))
    user = NOBODY if os.geteuid() == 0 and for_all else None
    command = [sys.executable, "-P", "-m", "hippo", *words]
    return subprocess.run(command, cwd=folder, env=environment, user=user, capture_output=True, text=True, check=False)


def test_the_wheel_holds_types_configurations_pages_and_what_was_learned(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {"hippo/py.typed", *(f"hippo/configs/{path.name}" for path in (ROOT / "configs" / "algo").glob("*.yaml"))}
    package = ROOT / "src"
    for ending in ("*.py", "*.policy", "*.npz", "*.j2", "*.jinja", "*.js", "*.css"):
        wanted |= {str(path.relative_to(package)) for path in (package / "hippo").rglob(ending)}
    assert wanted - names == set()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"hippo"}


def test_it_plans_from_a_read_only_package_without_a_home(installed: Path, tmp_path: Path) -> None:
    kept = compiling.folder()
    assert kept is not None
    shutil.copytree(kept, tmp_path / "cache" / kept.name)  # compiled in the image; sources are the same
    settings = {"HIPPO_CACHE": str(tmp_path / "cache")}
    version = run(installed, tmp_path, "--version", settings=settings)
    assert (version.returncode, version.stderr) == (0, "")
    assert re.fullmatch(r"hippo \d+\.\d+\.\d+\n", version.stdout)
    planned = run(installed, tmp_path, *PLAN, settings=settings)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["plan"]
    shown = run(installed, tmp_path, "train", "--config", "jobs", "--print-config", settings=settings)
    assert shown.stdout == (ROOT / "configs" / "algo" / "jobs.yaml").read_text()


def test_what_only_a_checkout_has_is_asked_for_in_one_sentence(installed: Path, tmp_path: Path) -> None:
    answer = run(installed, tmp_path, "bench", "--list", settings={})
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "belong to the source tree" in answer.stderr


@pytest.mark.slow
def test_the_image_plans_as_anybody_on_a_read_only_file_system() -> None:
    name, reason = engine()
    if not name:
        pytest.skip(reason)
    subprocess.run([name, "build", "--quiet", "--tag", "hippo-test", str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    locked = [name, "run", "--rm", "--read-only", "--network", "none", "--user", "12345:12345", "hippo-test"]
    planned = subprocess.run([*locked, *PLAN], capture_output=True, text=True, check=False)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["plan"]
