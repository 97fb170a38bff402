"""``hippo.run``: two processes for a plan of two stages."""

from __future__ import annotations

from pathlib import Path

import pytest

import hippo
from hippo.front_door import running
from hippo.run.lost import LostError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "two-domains.json"


def test_a_plan_is_run_and_held_against_what_was_predicted():
    heard = []
    options = hippo.RunOptions(steps=2, stand_in=True)
    problem, plan = hippo.load_plan(EXAMPLE)
    document = hippo.run(problem, plan, options, progress=lambda phase, share: heard.append(share))
    assert len(document["measured_step_s"]) == 2
    assert document["predicted_step_s"] > 0
    assert document["predicted_step_s"] <= document["measured_step_s"][-1]
    assert document["step_time_interval_s"] is None  # no links between the processes
    assert [each["rank"] for each in document["timeline"]] == [0, 1]
    for worker in document["timeline"]:
        kinds = [row[0] for row in worker["operations"]]
        assert kinds.count(0) == plan.pipelines[0].num_micro_batches
        assert kinds[-2:] == [3, 4]
        assert all(start <= end for *_, start, end in worker["operations"])
    assert heard[-1] == 1.0


def test_what_cannot_be_run_is_refused_before_a_process_starts(tmp_path):
    problem, plan = hippo.load_plan(EXAMPLE)
    with pytest.raises(hippo.InputError, match=r"^steps: must be from 1 to 1e\+06 \(got 0\)"):
        hippo.run(problem, plan, hippo.RunOptions(steps=0))
    with pytest.raises(hippo.InputError, match="^checkpoint: stand-ins have no layers to save"):
        hippo.run(problem, plan, hippo.RunOptions(stand_in=True), checkpoints=hippo.Checkpoints(tmp_path))
    with pytest.raises(hippo.InputError, match="^runtime: does not go with order learned"):
        hippo.run(problem, plan, hippo.RunOptions(order="learned", runtime="torch"))


def test_a_run_that_nobody_can_go_on_with_says_how_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def dies(*_: object, **__: object) -> None:
        raise LostError("rank 1 (stage 1, west) was ended by signal 9", {1})

    monkeypatch.setattr(running, "launch", dies)
    problem, plan = hippo.load_plan(EXAMPLE)
    saved = hippo.Checkpoints(tmp_path / "saved", every=4)
    for given, told in ((None, "with --checkpoint FOLDER it could go on"), (saved, "holds no whole checkpoint")):
        with pytest.raises(hippo.HippoError, match=f"ended by signal 9. To fix: run it again.*{told}"):
            hippo.run(problem, plan, hippo.RunOptions(steps=2), checkpoints=given)
