"""The loop: logs before it answers, swaps only what is better, falls back, and goes on after a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.online.guard import Margins, ReplayVerdict
from hippo.jobs.online.log import Left, Log
from hippo.jobs.online.loop import GUARD, Loop, LoopSettings, serve

from .worlds import ACTIONS, SHAPE, Counting, Fixed, Steady

MARGINS = Margins(worse=0.1, better=0.02, judged_jobs=10, watched_jobs=10, history_jobs=30)


def settings(folder: Path, **choices: object) -> LoopSettings:
    usual = {"review_every_jobs": 20, "margins": MARGINS, "background": "none", "durable": "normal"}
    return LoopSettings(folder, **(usual | choices))  # type: ignore[arg-type]


def weights(takes_s: float) -> np.ndarray:
    return np.array([takes_s])


def log_of(folder: Path) -> Log:
    return Log(folder / "log.sqlite", shape=SHAPE, actions=ACTIONS)


def test_every_decision_is_on_disk_before_it_is_carried_out(tmp_path: Path) -> None:
    with Loop(Counting(), weights(40.0), Fixed(100.0), settings(tmp_path)) as loop:
        source = Steady(8)
        for number in range(1, 9):
            moment = source.look()
            assert moment is not None
            source.carry_out(loop.decide(moment))
            assert loop.log.decisions == number
        found = loop.log.transitions()
    assert [each.action for each in found] == source.actions == [1, 0] * 4, "1 where it is allowed"
    assert [each.outcome for each in found] == [-1.0] * 7 + [None], "what came of the last is not known yet"
    assert found[0].probability == pytest.approx(1.1 / 1.3)
    assert {each.policy for each in found} == {1}


def test_better_policies_are_swapped_in_and_noted(tmp_path: Path) -> None:
    served = serve(Steady(90), Counting(), weights(40.0), Fixed(100.0), settings(tmp_path))
    assert served == 90
    with log_of(tmp_path) as log:
        assert [(version, why) for _, version, why in log.served] == [
            (1, "the first policy"),
            (2, "replayed better: 30 s, before 40, guard 100"),
            (3, "replayed better: 20 s, before 30, guard 100"),
            (4, "replayed better: 10 s, before 20, guard 100"),
            (5, "replayed better: 0 s, before 10, guard 100"),
        ]
        assert [file for _, file, _ in log.versions] == [f"policy-{version}.npz" for version in range(1, 6)]


def test_a_policy_that_is_no_better_is_not_swapped_in(tmp_path: Path) -> None:
    serve(Steady(100), Counting(step_s=-1.0), weights(40.0), Fixed(100.0), settings(tmp_path))
    with log_of(tmp_path) as log:
        assert [version for _, version, _ in log.served] == [1]


def test_the_guard_takes_over_where_measurements_are_worse_and_gives_way_again(tmp_path: Path) -> None:
    """Jobs take 50 s, and the last one has just come; the guard's replay says 45: beyond the margin of 10 %."""
    choices = settings(tmp_path)
    with Loop(Counting(step_s=1.0), weights(48.0), Fixed(45.0), choices) as loop:
        source, versions = Steady(66), []
        while (moment := source.look()) is not None:
            source.carry_out(loop.decide(moment))
            versions.append(loop.version)
        served = loop.log.served
    assert [version for _, version, _ in served] == [1, GUARD], "47 s is worse than the guard that serves"
    assert served[1][2] == "measured 45 s, the guard would have had 40 s"
    with Loop(Counting(step_s=8.0), weights(48.0), Fixed(45.0), choices) as loop:
        source = Steady(60, first=66)
        while (moment := source.look()) is not None:
            source.carry_out(loop.decide(moment))
        assert loop.log.served[2][1:] == (2, "replayed better: 40 s, before 45, guard 45")


def test_a_new_loop_goes_on_where_the_old_one_ended(tmp_path: Path) -> None:
    serve(Steady(59), Counting(), weights(40.0), Fixed(100.0), settings(tmp_path))
    with Loop(Counting(), weights(999.0), Fixed(100.0), settings(tmp_path)) as loop:
        source = Steady(1, first=59)
        moment = source.look()
        assert moment is not None
        loop.decide(moment)
        assert loop.version == 3
        assert loop._weights == weights(20.0)
        assert loop.log.decisions == 60


@pytest.mark.parametrize(("broken", "goes_on"), [((3,), 2), ((3, 2), 1), ((1, 2, 3), GUARD)])
def test_a_broken_policy_gives_way_to_the_one_before(tmp_path: Path, broken: tuple[int, ...], goes_on: int) -> None:
    serve(Steady(59), Counting(), weights(40.0), Fixed(100.0), settings(tmp_path))
    for version in broken:
        (tmp_path / f"policy-{version}.npz").write_bytes(b"half of it")
    with Loop(Counting(), weights(999.0), Fixed(100.0), settings(tmp_path)) as loop:
        moment = Steady(1, first=59).look()
        assert moment is not None
        loop.decide(moment)
        assert loop.version == goes_on
        assert any("policy-3.npz: the policy is not what the loop wrote" in why for _, _, why in loop.log.served)


def test_a_new_log_beside_old_policies_overwrites_none(tmp_path: Path) -> None:
    serve(Steady(25), Counting(), weights(40.0), Fixed(100.0), settings(tmp_path))
    old = {path.name: path.read_bytes() for path in tmp_path.glob("policy-*.npz")}
    assert sorted(old) == ["policy-1.npz", "policy-2.npz"]
    (tmp_path / "log.sqlite").write_bytes(b"x")
    with pytest.raises(InputError, match="damaged"):
        serve(Steady(25), Counting(), weights(70.0), Fixed(100.0), settings(tmp_path))
    serve(Steady(25), Counting(), weights(70.0), Fixed(100.0), settings(tmp_path))
    assert {name: (tmp_path / name).read_bytes() for name in old} == old
    with log_of(tmp_path) as log:
        assert [version for version, _, _ in log.versions] == [3, 4]


def test_a_policy_of_another_shape_is_told_and_not_used(tmp_path: Path) -> None:
    serve(Steady(5), Counting(), weights(40.0), Fixed(100.0), settings(tmp_path))
    with Loop(Counting(size=2), np.zeros(2), Fixed(100.0), settings(tmp_path)) as loop:
        moment = Steady(1, first=5).look()
        assert moment is not None
        loop.decide(moment)
        assert loop.version == GUARD
        assert "weights of another shape: (1,)" in loop.log.served[1][2]


def test_what_came_of_the_last_decision_and_the_last_jobs_is_told_at_the_end(tmp_path: Path) -> None:
    serve(Steady(8), Counting(), weights(40.0), Fixed(100.0), settings(tmp_path))
    with log_of(tmp_path) as log:
        assert [each.outcome for each in log.transitions()] == [-1.0] * 7 + [-2.0]
        assert [each.finish_s for each in log.jobs()] == [1000.0 * number + 50.0 for number in range(8)]


def test_a_job_that_left_is_told_by_a_moment(tmp_path: Path) -> None:
    with Loop(Counting(), weights(40.0), Fixed(100.0), settings(tmp_path)) as loop:
        for moment in (Steady(1).look(), Steady(2, first=1, ends=False).look()):
            assert moment is not None
            loop.decide(replace(moment, left=(Left("job 0", moment.time_s),) if moment.time_s else ()))
        assert [(each.finish_s, each.ran_s) for each in loop.log.jobs()] == [(1000.0, None), (None, None)]


def test_an_update_that_breaks_is_noted_and_nothing_changes(tmp_path: Path) -> None:
    serve(Steady(39), Counting(breaks=True), weights(40.0), Fixed(100.0), settings(tmp_path))
    with log_of(tmp_path) as log:
        assert [each[1:] for each in log.served[1:]] == [(1, "update failed: ZeroDivisionError: no luck")]


def test_a_bad_policy_falls_although_every_update_breaks(tmp_path: Path) -> None:
    """Jobs take 500 s, ten times as long as under the guard; failures that are noted do not begin the watch anew."""
    margins = Margins(worse=0.1, judged_jobs=3, watched_jobs=29, history_jobs=30)
    choices = settings(tmp_path, review_every_jobs=5, margins=margins)
    with Loop(Counting(breaks=True), weights(400.0), Fixed(50.0), choices) as loop:
        source = Steady(18, takes_s=500.0)
        while (moment := source.look()) is not None:
            source.carry_out(loop.decide(moment))
            loop.finish_review()
        broke = "update failed: ZeroDivisionError: no luck"
        fell = "measured 467 s, the guard would have had 47 s"  # 14 of 15 jobs have ended
        assert [why for _, _, why in loop.log.served] == ["the first policy", broke, broke, fell, broke]
        assert loop.version == GUARD


def test_failures_that_are_noted_do_not_change_since_when_a_policy_serves(tmp_path: Path) -> None:
    with Loop(Counting(breaks=True), weights(40.0), Fixed(100.0), settings(tmp_path, review_every_jobs=5)) as loop:
        source = Steady(40)
        while (moment := source.look()) is not None:
            source.carry_out(loop.decide(moment))
        assert sum(version == 1 for _, version, _ in loop.log.served) > 3
        assert loop._since_s() == 0.0


def test_a_policy_that_lets_no_job_end_falls_too(tmp_path: Path) -> None:
    source = Steady(40, ends=False)
    with Loop(Counting(), weights(40.0), Fixed(50.0), settings(tmp_path)) as loop:
        while (moment := source.look()) is not None:
            source.carry_out(loop.decide(moment))
        assert loop.version == GUARD
        assert loop.log.served[1][2].startswith("measured ")


def watched(loop: Loop[np.ndarray]) -> None:
    """Waits for the watch, which a decision may have taken note of already."""
    while loop._watching.busy:
        loop._watched(loop._watching.take(patient=True))


def test_an_update_that_hangs_does_not_hold_up_the_watch(tmp_path: Path) -> None:
    choices = settings(tmp_path, background="process", review_every_jobs=12)
    with Loop(Counting(sleeps_s=600.0), weights(40.0), Fixed(100.0), choices) as loop:
        source = Steady(14)
        while (moment := source.look()) is not None:
            source.carry_out(loop.decide(moment))
        watched(loop)
        assert loop._learning.busy
        source = Steady(20, first=14, takes_s=900.0)
        while (moment := source.look()) is not None:
            source.carry_out(loop.decide(moment))
        watched(loop)
        assert loop.version == GUARD
        assert loop._learning.busy


def test_an_update_made_before_a_fall_must_beat_the_guard(tmp_path: Path) -> None:
    """It replays better than the policy that has fallen since, and as the guard does."""
    with Loop(Counting(), weights(40.0), Fixed(100.0), settings(tmp_path)) as loop:
        moment = Steady(1).look()
        assert moment is not None
        loop.decide(moment)
        loop.fall("measured")
        loop._learned((weights(100.0), ReplayVerdict(100.0, 200.0, 100.0, True, "replayed better")))
        assert loop.version == GUARD
        loop._learned((weights(90.0), ReplayVerdict(90.0, 200.0, 100.0, True, "replayed better")))
        assert loop.version == 2


def test_what_is_noted_at_a_start_bears_the_time_of_the_last_decision(tmp_path: Path) -> None:
    serve(Steady(10), Counting(), weights(40.0), Fixed(100.0), settings(tmp_path))
    (tmp_path / "policy-1.npz").write_bytes(b"half of it")
    with Loop(Counting(), weights(40.0), Fixed(100.0), settings(tmp_path)) as loop:
        moment = Steady(11, first=10).look()
        assert moment is not None
        loop.open(moment)
        assert [time_s for time_s, _, _ in loop.log.served] == [0.0, 9000.0, 9000.0]


class _Odd(Fixed):
    def __init__(self, answer: object) -> None:
        super().__init__(1.0)
        object.__setattr__(self, "answer", answer)

    def probabilities(self, observation: np.ndarray, mask: np.ndarray) -> np.ndarray:
        if isinstance(self.answer, Exception):  # type: ignore[attr-defined]
            raise self.answer  # type: ignore[attr-defined]
        return np.array(self.answer)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _OddLearner(Counting):
    answer: object = None

    def policy(self, weights: np.ndarray) -> Fixed:
        return _Odd(self.answer)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([float("nan")] * 3, "no probabilities"),
        ([0.0] * 3, "no probabilities"),
        ([2.0, -1.0, 0.0], "no probabilities"),
        ([0.5, 0.5], r"shape (2,)"),
        ([0.0, 1.0, 0.0], "what is not allowed"),
        (ValueError("boom"), "ValueError: boom"),
    ],
)
def test_a_policy_with_no_answer_is_out_and_stays_out(tmp_path: Path, answer: object, told: str) -> None:
    learner = _OddLearner(answer=answer)
    source = Steady(3, first=1)  # the second action is not allowed at an odd moment
    assert serve(source, learner, weights(1.0), Fixed(50.0), settings(tmp_path)) == 3
    assert source.actions == [0, 0, 0], "the guard's"
    with log_of(tmp_path) as log:
        assert [version for _, version, _ in log.served] == [1, GUARD]
        assert told in log.served[1][2]
        assert [each.policy for each in log.transitions()] == [GUARD] * 3
    with Loop(learner, weights(1.0), Fixed(50.0), settings(tmp_path)) as again:
        moment = Steady(5, first=4).look()
        assert moment is not None
        assert again.decide(moment) == 0
        assert again.version == GUARD


def test_a_second_loop_in_the_folder_is_refused(tmp_path: Path) -> None:
    with Loop(Counting(), weights(40.0), Fixed(100.0), settings(tmp_path)) as loop:
        moment = Steady(1).look()
        assert moment is not None
        loop.decide(moment)
        with pytest.raises(InputError, match="another loop writes this log"):
            serve(Steady(1), Counting(), weights(40.0), Fixed(100.0), settings(tmp_path))


@pytest.mark.parametrize("way", ["process", "thread"])
def test_an_update_beside_the_loop_is_swapped_in_when_it_is_done(tmp_path: Path, way: str) -> None:
    with Loop(Counting(), weights(40.0), Fixed(100.0), settings(tmp_path, background=way)) as loop:
        source = Steady(30)
        while (moment := source.look()) is not None:
            source.carry_out(loop.decide(moment))
        loop.finish_review()
        assert loop.version == 2


def test_exploring_draws_answers_and_repeats_itself(tmp_path: Path) -> None:
    drawn = []
    for folder in ("one", "two"):
        source = Steady(40)
        serve(source, Counting(), weights(40.0), Fixed(100.0), settings(tmp_path / folder, explore=True))
        drawn.append(source.actions)
    assert drawn[0] == drawn[1]
    assert set(drawn[0]) == {0, 1, 2}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"background": "elsewhere"}, "way to learn beside"),
        ({"durable": "perhaps"}, "way to be durable"),
        ({"review_every_jobs": 0}, "write 1 or more"),
    ],
)
def test_wrong_settings_are_told(tmp_path: Path, choice: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        settings(tmp_path, **choice)


CRASHES = """
import sys, time
from pathlib import Path
import numpy as np
sys.path.insert(0, {tests!r})
from worlds import Counting, Fixed, Steady
from hippo.jobs.online.guard import Margins, ReplayVerdict
from hippo.jobs.online.loop import LoopSettings, serve

if __name__ == "__main__":
    margins = Margins(worse=.1, better=.02, judged_jobs=10, watched_jobs=10, history_jobs=30)
    settings = LoopSettings(Path(sys.argv[1]), review_every_jobs=20, margins=margins, background="process")
    learner = Counting(sleeps_s=float(sys.argv[2]))
    class Telling(Steady):
        def carry_out(self, action):
            super().carry_out(action)
            print(len(self.actions), flush=True)
    serve(Telling(100000), learner, np.array([40.0]), Fixed(100.0), settings)
"""


@pytest.mark.parametrize(("sleeps_s", "until", "version"), [(600.0, 60, 1)])
def test_killed_while_updating_it_loses_no_transition_and_no_policy(
    tmp_path: Path, sleeps_s: float, until: int, version: int
) -> None:
    script = tmp_path / "crashes.py"
    script.write_text(CRASHES.format(tests=str(Path(__file__).parent)))
    folder = tmp_path / "loop"
    loop = subprocess.Popen(
        [sys.executable, str(script), str(folder), str(sleeps_s)], stdout=subprocess.PIPE, text=True
    )
    assert loop.stdout is not None
    with loop:
        carried_out = [int(loop.stdout.readline()) for _ in range(until)][-1]
        os.kill(loop.pid, signal.SIGKILL)
        rest = loop.stdout.read().split("\n")[:-1]
    carried_out = int(rest[-1]) if rest else carried_out
    with Loop(Counting(), weights(999.0), Fixed(100.0), settings(folder)) as again:
        moment = Steady(1, first=carried_out).look()
        assert moment is not None
        again.decide(moment)
        found = again.log.transitions()
        assert again.version == version
    assert [each.observation[0] for each in found[:carried_out]] == list(range(carried_out))
    assert len(found) - 1 - carried_out in (0, 1)
