"""The table of learned dispatch, in a small form: what it prints is what was played."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from hippo.dispatch.train.settings import PlanSettings, Settings

from .conftest import ROOT
from .scripts import script


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        module = script("benchmarks/dispatch.py")
    module.__dict__.update(SEEDS=(1, 2), PLAYS=2, ASKED_PLAYS=2)
    return module


def test_what_was_asked_is_a_row_of_each_noise_and_memory(
    bench: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "PLAYS", 20)
    rows = bench.main(["--part", "asked"])
    said = capsys.readouterr().out
    assert {(row.case.noise, row.case.memory) for row in rows} == {(n, k) for n in bench.NOISES for k in ("8", "16")}
    for row in rows:
        problem = row.case.problem
        assert (problem.ranks, problem.micro_batches, row.case.fluctuation.level) == (8, 32, 0.3)
        assert [link.latency for link in problem.down] == [0.05, 0.05, 0.05, 5.0, 0.05, 0.05, 0.05]
        assert f"{row.trial.learned.mean:.1f} ±{row.trial.learned.error:.1f}" in said
        for order in ("zb-h1", "zb-h2", "zb-auto", "cross-domain"):
            assert bench.cell(row.trial, order) in said
    for sentence in bench.verdicts(rows):
        assert sentence in " ".join(said.split())


def test_what_rounds_to_nothing_has_no_minus(bench: ModuleType) -> None:
    assert [bench.signed((share, 0.0)) for share in (-1e-9, 0.0, -0.0006)] == ["+0.0 ±0.0", "+0.0 ±0.0", "-0.1 ±0.0"]


def test_every_delay_and_level_is_in_the_grid(bench: ModuleType) -> None:
    cases = list(bench.grid())
    assert len(cases) == (4 + 3) * 2 * 4
    assert {case.fluctuation.level for case in cases} == {0.0, 0.1, 0.2, 0.3}
    assert {case.links for case in cases} == {
        *(f"uniform {each:g}" for each in bench.DELAYS), "mid 0.1", "mid 1", "mid 5"
    }  # fmt: skip


def test_problems_drawn_here_are_told_as_a_mean(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PLAYS", 6)
    rows = [bench.measured(case) for case in list(bench.unseen())[:6]]
    saved = [100 * row.trial.saved(row.fixed)[0] for row in rows]
    told, known = bench.over_problems("30 %", rows)
    assert f"saves {sum(saved) / 6:+.2f} ±" in told
    assert {row.case.noise for row in rows} == set(bench.NOISES)
    assert list(bench.over_problems("30 %", [])) == []
    for learned, foreseen, floor in (row.foresight() for row in rows):
        assert learned <= foreseen <= floor + 1e-9
    assert f"at least {bench.over([row.foresight()[1] for row in rows], rows)} (searched)" in known


def test_several_policies_are_told_each(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PLAYS", 6)
    cases = list(bench.look())[:2]
    assert len(list(bench.look())) == bench.DRAWN
    rows = [bench.measured(case, [bench.shipped(), bench.follower()]) for case in cases]
    for row in rows:
        assert row.saved(row.unlearned) == pytest.approx([row.trial.saved(row.unlearned)[0], 0.0])
    mean = sum(row.saved(row.hint)[1] for row in rows) / 2
    assert any(f", {100 * mean:+.2f} %." in told for told in bench.over_problems("30 %", rows))


def test_nothing_here_is_of_a_shape_that_policies_learn_on(bench: ModuleType) -> None:
    for part, (_, cases) in bench.PARTS.items():
        sides = {bench.side_of(case.problem) for case in cases()}
        assert sides == {bench.LOOK if part == "look" else bench.JUDGE}
    own = [problem for _, _, problem in bench.drawn_problems()]
    assert len(own) == len(set(own)) == 60


def test_a_policy_that_learns_on_the_problem_alone_gets_better_there(bench: ModuleType) -> None:
    """The same plays as before: it has learned on others."""
    problem = bench.pipeline("mid", 1.0, 2, ranks=3, micro_batches=9)
    case = bench.Case("asked", "small", "2", "30 %", problem, bench.NOISES["normal"], 32)
    row = bench.measured(case, lessons=bench.Lessons((20,), "deviation", (0,), None))
    assert row.lessons[0].spread.mean < 0.999 * row.trial.learned.mean


def test_rows_as_documents(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench.main(["--part", "asked", "--json"])
    documents = json.loads(capsys.readouterr().out)
    assert [each["learned"]["mean"] for each in documents] == [row.trial.learned.mean for row in rows]
    assert all(len(each["baselines"]) in (4 * 8, 4 * 8 - 1) for each in documents)  # H2 alone may not fit


def test_hindsight_lies_between_floor_and_play(bench: ModuleType) -> None:
    pytest.importorskip("ortools")
    problem = bench.pipeline("mid", 5.0, 3, ranks=3, micro_batches=5)
    found = bench.exact("small", problem, bench.NOISES["slow ranks"], plays=3, time_limit_s=5.0)
    for least, most in ((found.floor, found.optimum), (found.optimum, found.learned), (found.optimum, found.baseline)):
        assert (least.makespans <= most.makespans * (1 + 1e-6)).all()
    assert "3 plays, 3 proved" in found.told()


def test_shapes_count_not_problems(bench: ModuleType) -> None:
    """The same problem ten times over tells no more than once: the interval of two shapes stays what it was."""
    problems = [problem for _, _, problem in bench.drawn_problems()][:2]
    rows = [SimpleNamespace(case=SimpleNamespace(problem=each)) for each in problems]
    assert bench.over([0.01, 0.03], rows) == bench.over([0.01] * 10 + [0.03] * 10, [rows[0]] * 10 + [rows[1]] * 10)
    assert bench.over([0.01, 0.03], rows) == "+2.00 ±1.96 %"


def test_what_was_learned_on_a_problem_is_kept_and_told(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = PlanSettings(draws=2, decisions=2, look_draws=4, trial_draws=4)
    monkeypatch.setattr(bench, "Settings", lambda: Settings(plan=small))
    monkeypatch.setattr(bench, "PLAYS", 6)
    lessons = bench.Lessons((1, 2), "deviation", (0, 1), tmp_path / "kept")
    cases = sorted(bench.unseen(), key=lambda case: case.problem.ranks * case.problem.micro_batches)[:2]
    rows = [bench.measured(case, lessons=lessons) for case in cases]
    for row in rows:
        assert [(each.seed, each.updates) for each in row.lessons] == [(0, 1), (0, 2), (1, 1), (1, 2)]
        for each in row.lessons:
            assert each.learned or each.makespans == row.trial.learned.makespans.tolist()
    monkeypatch.setattr(bench, "learned_on", None)  # nothing is learned again
    assert [lessons.of(case) for case in cases] == [row.lessons for row in rows]
    one, two = bench.after_learning(rows)
    assert one.startswith("After 1 updates on the very problem, told its deviation")
    assert two.startswith("After 2 updates")
