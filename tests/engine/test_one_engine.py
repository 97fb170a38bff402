"""One room moves a pipeline's clock on: a reminder that names every other function that might, not a proof."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import hippo

PACKAGE = Path(hippo.__file__).parent
ENGINE = "hippo.engine.events"
STEPS = {"earliest", "start", "sleep"}
OTHER_WORLDS = ("dynamics", "engine", "jobs", "network")  # the room itself; queues and moving networks are no pipelines

OWN_LOOPS = {
    "dispatch/play.py:following": "own loop over the engine's steps: stops where a rank has a choice",
    "dispatch/play.py:act": "its step: makes a rank start",
    "schedule/generators/v_shape.py:_order": "own loop over the engine's steps, on pretended times",
    "simulate/calls.py:_planned_ends": "zero bubble's own plan, which places its messages; its time says the engine",
    "schedule/generators/zb_auto.py:_run": "own clock of a plan by rounds; what it is worth says the engine",
    "schedule/search/graph.py:heads": "own clock: a longest path from one operation on, after a move",
    "schedule/search/graph.py:tails": "the same backwards",
}
NO_PLAYS = {
    "dispatch/base.py:_tails": "a longest path backwards, once for a schedule",
    "dispatch/noise/hindsight.py:_floors": "a bound on every order",
    "dispatch/noise/hindsight.py:_heads": "its earliest starts",
    "planners/baselines/dtfm_kernel.py:_push": "a matching",
    "planners/exact/interleaved.py:dealt_on": "most blocks that ranks can be dealt within a limit, a bound",
    "planners/exact/replicas.py:_seats": "the quickest share of a domain",
    "planners/exact/replicas.py:deal": "counts of micro-batches",
    "planners/exact/ways.py:_grow_paths": "costs of paths between domains, no times",
    "report/world_charts.py:device_map": "heights of rows on a page",
    "planners/run_ahead.py:least_warm_up": "counts of micro-batches in flight",
    "run/executor/asking.py:_take": "when a link that is played is free again, by what was announced",
    "schedule/bound/heads.py:raise_heads": "a bound on every order",
    "schedule/generators/dualpipe.py:generate": "counts of operations",
    "schedule/generators/v_shape.py:_lay": "counts and times that its loop begins with",
    "schedule/search/policy.py:_change_count": "counts of a policy",
    "simulate/rollouts.py:_back": "a trainer's steps and its pushes: whole steps, no operations of a pipeline",
    "simulate/rollouts.py:_look": "a replica's batch of samples and its way back",
    "simulate/transport/sharing.py:_cut": "windows of flows that have lost",
    "simulate/transport/sharing.py:_run": "flows of a link, round trip after round trip",
    "simulate/transport/sharing.py:_windowed": "their windows",
}


def players(source: str) -> set[str]:
    """Functions and methods that call a step of the event loop, or that write times as a play does."""
    tree = ast.parse(source)
    steps = _steps(tree)
    return {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and (_calls(function, steps) or _moves_times(function))
    }


def _steps(tree: ast.Module) -> set[str]:
    """What the engine's steps are called in a module, under whatever name."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            known |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            known |= {each.asname or each.name: each.name for each in node.names}
    names = {f"{name}.{step}" for name, whole in known.items() if whole == ENGINE for step in STEPS}
    names |= {name for name, whole in known.items() if whole in {f"{ENGINE}.{step}" for step in STEPS}}
    for target, value in _assigned(tree) if names else ():
        if ast.unparse(value) in names:
            names.add(ast.unparse(target))
    return names


def _calls(function: ast.AST, steps: set[str]) -> bool:
    called = (node for node in ast.walk(function) if steps and isinstance(node, ast.Call))
    return any(ast.unparse(node.func) in steps for node in called)


def _moves_times(function: ast.AST) -> bool:
    """Whether an array that it also reads gets the later of two times (``max(a, b)``, ``if a > b: b = a``) and some."""
    nodes = list(ast.walk(function))
    later = {name for node in nodes if isinstance(node, ast.If) for name in _raised(node)}
    if not later and not any(map(_is_later, nodes)):
        return False
    reads = {
        ast.unparse(node.value) for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
    }
    given = [(target, ast.unparse(target), value, _adds(value)) for target, value in _assigned(function)]
    for node in nodes:
        if isinstance(node, ast.AugAssign):
            name, adds = ast.unparse(node.target), isinstance(node.op, ast.Add)
            given += [(node.target, name, node.value, adds), (node.target, name, node.target, adds)]
    passed = [
        (target, name, any(map(_is_later, ast.walk(value))), _names(value), adds) for target, name, value, adds in given
    ]
    ends: set[str] = set()
    for _ in range(3):  # names hand times on
        for _target, name, is_later, names, adds in passed:
            if is_later or names & later:
                later.add(name)
                if adds or names & ends:
                    ends.add(name)
    return any(
        isinstance(target, ast.Subscript) and name in ends and ast.unparse(target.value) in reads
        for target, name, *_ in passed
    )


def _assigned(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values, those of tuples one by one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=False)
                else:
                    yield target, node.value


def _raised(node: ast.If) -> Iterator[str]:
    if isinstance(node.test, ast.Compare):
        sides = {ast.unparse(side) for side in (node.test.left, *node.test.comparators)}
        for target, value in _assigned(node):
            if {ast.unparse(target), ast.unparse(value)} <= sides:
                yield ast.unparse(target)


def _is_later(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and len(node.args) > 1 and ast.unparse(node.func) in ("max", "np.maximum")


def _adds(value: ast.expr) -> bool:
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) for node in ast.walk(value))


def _names(value: ast.expr) -> set[str]:
    return {ast.unparse(node) for node in ast.walk(value) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript)}


def test_every_loop_outside_the_engine_is_known_by_name() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()}:{name}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in OTHER_WORLDS
        for name in players(path.read_text())
    }
    assert found == {*OWN_LOOPS, *NO_PLAYS}


def test_a_second_loop_would_be_seen_whatever_its_names() -> None:
    body = "    for op, r in order:\n        {}\n        b[op] = now + took[op]\n        a[r] = b[op]\n"
    later = ("now = max(a[r], b[op])", "now = a[r]\n        if b[op] > now: now = b[op]", "now = max(b[op], a[r])")
    loops = [f"def play(order, a, b, took):\n{body.format(line)}" for line in later]
    loops.append(f"from hippo.compiling import kernel as jit\n@jit\n{loops[0]}")
    loops.append("class Any:\n" + "".join(f"    {line}\n" for line in loops[0].splitlines()))
    loops.append("def play(a, b):\n    for r in a:\n        a[r] = max(a[r], b[r])\n        a[r] += 1.0\n")
    assert [players(loop) for loop in loops] == [{"play"}] * len(loops)
    for room, step in (("events", "start"), ("fixed_order", "replay")):
        assert step in players((PACKAGE / "engine" / f"{room}.py").read_text())


def test_the_engines_steps_are_seen_under_other_names() -> None:
    call = "def play(b):\n    {}(b.wake)\n"
    assert players("from hippo.engine.events import earliest as first\n" + call.format("first")) == {"play"}
    assert players("from hippo.engine import events as e\n" + call.format("e.earliest")) == {"play"}
    assert players("import hippo.engine.events\n" + call.format("hippo.engine.events.sleep")) == {"play"}
    assert players("from hippo.engine.events import start\ngo = start\n" + call.format("go")) == {"play"}
    assert players("from hippo.jobs.engine.running import start\n" + call.format("start")) == set()
