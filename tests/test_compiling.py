"""What is compiled follows its sources, is kept once, and a place that cannot keep it stops nobody."""

from __future__ import annotations

import ast
import atexit
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

import hippo
from hippo import compiling
from hippo.compiling import Row, kernel

CALLED = """
from hippo.compiling import kernel
from pair.constants import (  # a longer list
    FACTOR,
)

@kernel
def times(values):
    if len(values) == 0:
        raise ValueError("no values")
    return values.sum() * FACTOR
"""
CALLER = """
from hippo.compiling import kernel
from pair.called import times

@kernel(lean=True)
def twice(values):
    return 2 * times(values)
"""
ASK = """
import numba.core.event as event
import numpy as np

compiled = []

class Listener(event.Listener):
    def on_start(self, begun):
        compiled.append(begun.data["dispatcher"].__name__)
    def on_end(self, ended):
        pass

event.register("numba:compile", Listener())
from pair.caller import twice
print(twice(np.arange(3.0)), *[name for name in compiled if name in ("twice", "times")])
"""
STEM = """
import json, os, sys, tempfile, traceback
import hippo.compiling
from numba.core.registry import cpu_target

cpu_target.target_context.refresh()
for line in sys.stdin:
    script, environment, out, err = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for number, path in enumerate((out, err), start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.path[:] = [*environment["PYTHONPATH"].split(":"), *sys.path[2:]]
    for name in [name for name in sys.modules if name.partition(".")[0] == "hippo"]:
        del sys.modules[name]
    status = 0
    try:
        exec(script, {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
"""


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """The folder of a package with a kernel that calls one of another file."""
    return _pair(tmp_path / "sources")


def _pair(parent: Path) -> Path:
    package = parent / "pair"
    package.mkdir(parents=True)
    files = {"__init__": "", "constants": "FACTOR = 5\n", "called": CALLED, "caller": CALLER}
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    return package


def _environment(package: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "OMP_NUM_THREADS")}
    path = f"{package.parent}:{Path(hippo.__file__).parents[1]}"
    return {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **more}


class _Stem:
    """Starts processes that have read numba already, as most of a process' time goes there, and nothing of hippo."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", STEM]
        environment = {**os.environ, "PYTHONPATH": str(Path(hippo.__file__).parents[1])}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, script: str, environment: dict[str, str], said: Path) -> tuple[int, str, str]:
        """The exit status of a new process that runs this, and what it wrote on stdout and stderr."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        out, err = said / "out", said / "err"
        print(json.dumps([script, environment, str(out), str(err)]), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline()), out.read_text(), err.read_text()


@cache
def _stem() -> _Stem:
    found = _Stem()
    atexit.register(found.process.communicate)  # ends with what it reads
    return found


def _ask(package: Path, script: str = ASK, **more: str) -> tuple[str, str]:
    """What a new process says on stdout and stderr."""
    with tempfile.TemporaryDirectory() as said:
        status, out, err = _stem().run(script, _environment(package, **more), Path(said))
    assert status == 0, err
    return out.strip(), err.strip()


def _said(pair: Path, **more: str) -> str:
    answer, said = _ask(pair, **more)
    assert answer == "30.0 twice times"
    assert "Traceback" not in said
    return said


def test_an_edit_of_a_kernel_that_another_file_calls_is_seen(pair: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    assert _ask(pair, HIPPO_CACHE=cache) == ("30.0 twice times", "")
    assert _ask(pair, HIPPO_CACHE=cache) == ("30.0", "")  # nothing is compiled twice
    (pair / "called.py").write_text(CALLED.replace("values.sum()", "1000 * values.sum()"))
    assert _ask(pair, HIPPO_CACHE=cache)[0].startswith("30000.0 ")
    (pair / "constants.py").write_text("FACTOR = 7\n")  # a file without kernels that a kernel's file imports
    later = os.stat(pair / "constants.py").st_mtime + 10.0  # of equal size in one second: no edit to Python
    os.utime(pair / "constants.py", (later, later))
    assert _ask(pair, HIPPO_CACHE=cache)[0].startswith("42000.0 ")
    (pair / "elsewhere.py").write_text("FACTOR = 9\n")  # one that no kernel can see
    assert _ask(pair, HIPPO_CACHE=cache)[0] == "42000.0"


def test_copies_of_the_same_sources_share_what_is_compiled(pair: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    _ask(pair, HIPPO_CACHE=cache)
    assert _ask(_pair(tmp_path / "copy"), HIPPO_CACHE=cache) == ("30.0", "")


def test_a_kernel_is_kept_for_kernels_of_other_processes_too(pair: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    _ask(pair, HIPPO_CACHE=cache)
    for entry in (tmp_path / "cache").glob("*/*.entry"):
        entry.unlink()
    assert _ask(pair, HIPPO_CACHE=cache) == ("30.0 twice", "")
    raised = ASK.replace("print(", "try:\n    twice(np.zeros(0))\nexcept ValueError as error:\n    print(error, ")
    assert _ask(pair, raised, HIPPO_CACHE=cache)[0] == "no values 30.0"


def test_nothing_is_written_beside_sources_and_no_home_is_needed(pair: Path, tmp_path: Path) -> None:
    before = sorted(pair.rglob("*"))
    for each in (*before, pair):
        each.chmod(0o555)
    answer = _ask(pair, HOME="/proc/nobody", TMPDIR=str(tmp_path))
    for each in (*before, pair):
        each.chmod(0o755)
    assert answer == ("30.0 twice times", "")
    assert [each for each in sorted(pair.rglob("*")) if each.suffix != ".pyc" and each.name != "__pycache__"] == before
    assert len(list((tmp_path / f"hippo-{os.getuid()}").glob("kernels-*/*.entry"))) == 1


def test_the_home_is_taken_before_the_temporary_folder(pair: Path, tmp_path: Path) -> None:
    _ask(pair, HOME=str(tmp_path / "home"), TMPDIR=str(tmp_path))
    assert list((tmp_path / "home" / ".cache" / "hippo").glob("kernels-*/*.entry"))
    assert _ask(pair, HOME="/proc/nobody", XDG_CACHE_HOME=str(tmp_path / "home" / ".cache")) == ("30.0", "")


def test_a_temporary_folder_that_others_may_write_is_not_trusted(pair: Path, tmp_path: Path) -> None:
    own = tmp_path / f"hippo-{os.getuid()}"
    own.mkdir()
    own.chmod(0o777)
    said = _said(pair, HOME="/proc/nobody", TMPDIR=str(tmp_path))
    assert "no folder for caches can be written" in said
    assert list(own.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_said_in_one_sentence(pair: Path) -> None:
    said = _said(pair, HIPPO_CACHE="/proc/nowhere")
    assert said.count("is not kept") == 1
    assert "/proc/nowhere/kernels-" in said
    assert "To fix: let HIPPO_CACHE name a folder" in said


def test_a_file_that_cannot_be_completed_leaves_nothing(pair: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=_environment(pair, HIPPO_CACHE=str(tmp_path / "cache")),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "30.0 twice times"
    assert done.stderr.count("is not kept") == 1
    assert list((tmp_path / "cache").glob("*/*.*")) == []


@pytest.mark.usefixtures("namespaces")
def test_a_full_disk_stops_nobody(pair: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    mount = f"mount -t tmpfs -o size=16k none {cache} && exec {sys.executable} -c '{ASK.replace(chr(39), chr(34))}'"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount],
        env=_environment(pair, HIPPO_CACHE=str(cache)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "30.0 twice times"
    assert done.stderr.count("No space left on device") == 1


def test_a_damaged_file_is_compiled_again(pair: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    _ask(pair, HIPPO_CACHE=str(cache))
    for number, file in enumerate(cache.glob("*/*.*")):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content if number else b"")
    assert _ask(pair, HIPPO_CACHE=str(cache)) == ("30.0 twice times", "")
    assert _ask(pair, HIPPO_CACHE=str(cache)) == ("30.0", "")


def test_two_processes_may_compile_at_once(pair: Path, tmp_path: Path) -> None:
    environment = _environment(pair, HIPPO_CACHE=str(tmp_path / "cache"))
    both = [
        subprocess.Popen([sys.executable, "-c", ASK], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [each.communicate()[0].split() for each in both]
    assert [answer[0] for answer in answers] == ["30.0", "30.0"]
    assert sorted(name for answer in answers for name in answer[1:]) == ["times", "twice"]  # nothing twice
    assert sorted(file.suffix for file in (tmp_path / "cache").glob("*/*.*")) == [".entry", ".inner"]
    assert _ask(pair, HIPPO_CACHE=str(tmp_path / "cache")) == ("30.0", "")


def test_folders_that_nobody_uses_any_more_are_removed(pair: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for days in range(6):
        folder = cache / f"kernels-{days}"
        folder.mkdir(parents=True)
        (folder / "a.entry").touch()
        os.utime(folder, (1e9 - days * 86400.0,) * 2)
    (cache / "kernels-used").mkdir()
    (cache / "mine").mkdir()
    _ask(pair, HIPPO_CACHE=str(cache))
    stay = sorted(folder.name for folder in cache.iterdir() if not list(folder.glob("*.twice-*")))
    assert [name for name in stay if len(name) < 20] == ["kernels-0", "kernels-1", "kernels-used", "mine"]


def _stays_at(pair: Path, cache: Path, expected: str, script: str = ASK) -> None:
    """Two processes answer the same, and the second compiles nothing."""
    assert _ask(pair, script, HIPPO_CACHE=str(cache))[0].split()[0] == expected
    assert _ask(pair, script, HIPPO_CACHE=str(cache))[0] == expected


def test_tuples_of_one_name_share_nothing_if_their_fields_or_modules_differ(pair: Path, tmp_path: Path) -> None:
    tuples = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    {}: object\n    {}: object\n"
    for module, fields in (("left", "ab"), ("right", "ba")):
        (pair / f"{module}.py").write_text(tuples.format(*fields))
    less = "from hippo.compiling import kernel\n@kernel\ndef less(p):\n    return p.a - p.b\n"
    first = "@kernel\ndef first(p):\n    return p.a[0] - p.b[0]\n@kernel\ndef outer(p):\n    return first(p)\n"
    (pair / "caller.py").write_text(less + first)
    script = """
import importlib, sys
import numpy as np
import pair.caller as caller
for module in sys.argv[1:]:
    Pair = importlib.import_module(f"pair.{module}").Pair
    print(caller.less(Pair(a=10.0, b=1.0)), caller.outer(Pair(a=np.array([10.0]), b=np.array([1.0]))))
"""
    for modules in (["left"], ["right"], ["left", "right"]):
        named = script.replace("sys.argv[1:]", repr(modules))
        assert _ask(pair, named, HIPPO_CACHE=str(tmp_path / "cache"))[0].split() == ["9.0"] * 2 * len(modules)
    assert len(list((tmp_path / "cache").glob("*/*.entry"))) == 4
    assert len({str(compiling.Shared(numba.typeof(each))) for each in (One.Two(np.zeros(1)), Two(np.zeros(1)))}) == 2


@pytest.mark.parametrize("when", ["before the first call", "after the first call"])
def test_a_source_that_is_edited_while_a_process_runs_leaves_nothing_behind(
    pair: Path, tmp_path: Path, when: str
) -> None:
    (pair / "other.py").write_text(CALLED)
    # A process knows when it began to a tick of the kernel: one that is forked with all imported edits within it.
    edit = "import pathlib, time; time.sleep(0.03); "
    edit += f"pathlib.Path({str(pair / 'constants.py')!r}).write_text('FACTOR = 100')\n"
    ask = ASK.replace("print(", f"{edit}print(")
    if when == "after the first call":
        ask = ASK.replace("print(", f"from pair.other import times\ntimes(np.arange(2.0))\n{edit}print(")
    cache = tmp_path / "cache"
    assert _ask(pair, ask, HIPPO_CACHE=str(cache))[0].split()[0] == "30.0"
    assert not list(cache.glob("*/*.twice-*"))
    assert not list(cache.glob("*/*.times-*.inner"))
    _stays_at(pair, cache, "600.0")


def test_a_clock_that_was_set_back_makes_no_process_younger(monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = compiling._began_ns(), time.time_ns()
    for step_s, moved_s in ((-3600, -3600), (3600, 0)):
        monkeypatch.setattr(time, "time_ns", lambda stepped=now + step_s * 10**9: stepped)
        assert compiling._began_ns() - before == pytest.approx(moved_s * 10**9, abs=60 * 10**9)


def test_a_constant_that_is_set_at_run_time_is_no_other_process_s(pair: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    changed = ASK.replace("print(", "import pair.called\npair.called.FACTOR = 77\nprint(")
    _stays_at(pair, cache, "462.0", changed)
    _stays_at(pair, cache, "30.0")
    late = changed.replace(
        "import pair.called", "from pair.called import times; times(np.arange(3.0)); import pair.called"
    )
    # Longer, as Python takes two files of the same second and size for one.
    (pair / "caller.py").write_text(CALLER.replace("2 *", "4.0 *"))
    _ask(pair, late, HIPPO_CACHE=str(cache))  # what the caller takes in may have been compiled before
    _stays_at(pair, cache, "60.0")


def test_kernels_that_no_file_marks_are_not_kept(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("from hippo import compiling\n@compiling.kernel\ndef f(x):\n    return x + 1\n")
    script = "from hippo.compiling import kernel\nimport alone\n@kernel\ndef g(x):\n    return x + 1\n"
    assert _ask(tmp_path / "pair", script + "print(g(1), alone.f(1))", HIPPO_CACHE=str(tmp_path / "cache"))[0] == "2 2"
    assert not list((tmp_path / "cache").glob("*/*.entry"))


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
def test_control_c_while_machine_code_is_made_is_raised_when_it_is_made() -> None:
    done = []

    def press() -> None:
        with compiling._interrupted_later():
            signal.raise_signal(signal.SIGINT)
            done.append("made")

    with pytest.raises(KeyboardInterrupt):
        press()
    assert done == ["made"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# ------------------------------------------------------------------------------------------------------------- kernels
@kernel(lean=True)
def _gives_back(values):  # type: ignore[no-untyped-def]
    return values


@kernel
def _makes(size):  # type: ignore[no-untyped-def]
    return np.zeros(size)


@kernel(lean=True)
def _asks_for_one(size):  # type: ignore[no-untyped-def]
    return _makes(size)[0]


@kernel(lean=True)
def _half(value):  # type: ignore[no-untyped-def]
    return value / 2


@kernel(lean=True)
def _quarter(value):  # type: ignore[no-untyped-def]
    return _half(_half(value))


class Inside(NamedTuple):
    level: NDArray[np.int64]


class World(NamedTuple):
    step: int
    clock: NDArray[np.float64]
    inside: Inside


class Two(NamedTuple):
    clock: NDArray[np.float64]


class One:
    class Two(NamedTuple):
        clock: NDArray[np.float64]


@kernel(lean=True)
def _tick(world):  # type: ignore[no-untyped-def]
    world.clock[0] += world.step
    _rise(world.inside, len(world.clock))


@kernel(lean=True)
def _rise(inside, by):  # type: ignore[no-untyped-def]
    inside.level[0] += by


@kernel(lean=True, flat=True)
def _level(world):  # type: ignore[no-untyped-def]
    return world.inside.level[0]


@kernel(lean=True)
def _level_after_a_tick(world):  # type: ignore[no-untyped-def]
    _tick(world)
    return _level(world)


@kernel(lean=True)
def _two_ticks(world):  # type: ignore[no-untyped-def]
    _tick(world)
    _tick(world)
    return world.clock[0]


@kernel(lean=True)
def _tick_each(row, count):  # type: ignore[no-untyped-def]
    for each in range(count):
        _tick(row[each])


@kernel
def _tick_of_its_own(count):  # type: ignore[no-untyped-def]
    found = 0.0
    for each in range(count):
        world = World(each, np.zeros(3), Inside(np.zeros(1, np.int64)))
        _tick(world)
        found += world.clock[0] + world.inside.level[0]
    return found


@kernel
def _clock(world):  # type: ignore[no-untyped-def]
    return world.clock


@kernel
def _itself(world):  # type: ignore[no-untyped-def]
    return world


def test_a_tuple_of_arrays_is_handed_on_by_its_place_and_its_arrays_are_changed() -> None:
    world = World(2, np.array([0.5, 0.0, 0.0]), Inside(np.zeros(1, np.int64)))
    assert _two_ticks(world) == 4.5
    assert (world.clock[0], world.inside.level[0]) == (4.5, 6)
    assert [str(types[0]).startswith("Shared(World)") for types in _tick.inner] == [True]  # a place, not its fields


def test_a_flat_kernel_is_handed_its_fields() -> None:
    world = World(2, np.array([0.5, 0.0, 0.0]), Inside(np.zeros(1, np.int64)))
    assert (_level_after_a_tick(world), _level(world)) == (3, 3)
    assert [str(types[0]).startswith("World(") for types in _level.inner] == [True]


def test_a_tuple_that_a_kernel_makes_is_handed_on_anew_in_every_round() -> None:
    assert _tick_of_its_own(4) == 0 + 1 + 2 + 3 + 4 * 3


def test_tuples_side_by_side_are_found_at_their_places() -> None:
    row = Row(2)
    for each in range(2):
        row[each] = World(2 + each, np.array([0.5, 0.0, 0.0]), Inside(np.zeros(1, np.int64)))
    _tick_each(row, 2)
    row[1] = World(5, np.zeros(1), Inside(np.zeros(1, np.int64)))  # another one in its place
    _tick_each(row, 2)
    assert [(row[each].clock[0], row[each].inside.level[0]) for each in range(2)] == [(4.5, 6), (5.0, 1)]
    with pytest.raises(AssertionError, match="tuples of a row are of one type"):
        row[0] = World(2, np.zeros((2, 2)), Inside(np.zeros(1, np.int64)))


def test_arrays_of_a_tuple_are_held_as_often_afterwards_as_before() -> None:
    clock = np.zeros(3)
    before = sys.getrefcount(clock)
    for _ in range(3):
        assert _clock(World(1, clock, Inside(np.zeros(1, np.int64)))) is clock
    assert sys.getrefcount(clock) == before


def test_a_tuple_of_arrays_is_not_given_back_by_its_place() -> None:
    with pytest.raises(TypeError, match="_itself returns a tuple that it was handed"):
        _itself(World(2, np.zeros(1), Inside(np.zeros(1, np.int64))))


@pytest.mark.parametrize(("call", "how"), [(_gives_back, "returns"), (_asks_for_one, "calls _makes, which returns")])
def test_a_lean_kernel_is_handed_no_array(call: compiling.Kernel, how: str) -> None:
    given = np.zeros(2) if call is _gives_back else 2
    with pytest.raises(TypeError, match=f"the lean kernel {call.__name__} {how} array"):
        call(given)


def test_what_kernels_call_python_may_call_too() -> None:
    assert _quarter(4.0) == 1.0
    assert _half(4.0) == 2.0
    assert _half(1.0) / np.float64(1.0) == 0.5
    assert np.isinf(_half(np.inf))


def test_every_file_with_kernels_is_part_of_the_digest(tmp_path: Path) -> None:
    copy = tmp_path / "hippo"
    shutil.copytree(Path(hippo.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__", "*.json"))
    script = "import hippo, hippo.compiling as c\nassert '{}' in hippo.__file__\nprint(c.digest('hippo'))"
    script = script.format(tmp_path)

    def found() -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    whole = found()
    holding = [path for path in copy.rglob("*.py") if "\n@kernel" in path.read_text()]
    assert len(holding) > 20
    holding[-1].write_text(holding[-1].read_text() + "\n")
    assert found() != whole


def test_sources_use_the_forms_of_imports_and_of_the_decorator_that_the_digest_sees() -> None:
    reached = compiling._reached("hippo")
    assert len(reached) > 40
    for name, (path, _) in compiling._sources("hippo"):
        source = Path(path).read_bytes()
        tree = ast.parse(source)
        marked = compiling.MARK in source
        assert marked or not any(_imports_the_decorator(node) for node in ast.walk(tree)), f"{name}: write @kernel"
        if name not in reached:
            continue
        followed = set(compiling._imports(source))
        for node in tree.body:
            if isinstance(node, ast.Import):
                assert not [each.name for each in node.names if each.name.startswith("hippo")], f"{name}: {node.lineno}"
            elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("hippo")):
                assert node.level == 0, f"{name}: {node.lineno}: a relative import"
                assert str(node.module).replace(".", "/") in followed, f"{name}: {node.lineno}"
                wanted = {f"{node.module}.{each.name}".replace(".", "/") for each in node.names}
                assert wanted <= followed, f"{name}: {node.lineno}"


def _imports_the_decorator(node: ast.AST) -> bool:
    """Whether this imports the decorator or its module, but for what else there is in it."""
    if isinstance(node, ast.ImportFrom):
        names = [each.name for each in node.names]
        return (node.module == "hippo.compiling" and "kernel" in names) or (
            node.module == "hippo" and "compiling" in names
        )
    return isinstance(node, ast.Import) and any(each.name == "hippo.compiling" for each in node.names)
