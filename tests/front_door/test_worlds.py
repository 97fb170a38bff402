"""``evaluate_worlds``: policies of several seeds as one method, arrivals after a trace, what is asked kept together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.jobs.joint.hi_ppo.test_agents import small, table

from hippo.errors import InputError
from hippo.front_door.worlds import WorldsChoice, methods_of
from hippo.jobs.joint.evaluate.evidence import evidence
from hippo.jobs.joint.evaluate.suite import WorldSuite, play_worlds
from hippo.jobs.joint.evaluate.worlds import WorldDraw, WorldGround
from hippo.jobs.joint.hi_ppo.learner import SiteAgents
from hippo.jobs.joint.hi_ppo.train import packed
from hippo.jobs.traces.generate import fitted
from hippo.jobs.workload import JobWorkload

DRAW = WorldDraw("mixed", 1.0, "still", 4, 8, 3)


def test_policies_of_several_seeds_play_as_one_method(tmp_path: Path):
    files = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        files.append(tmp_path / f"{seed}.npz")
        files[-1].write_bytes(packed(SiteAgents(small(tmp_path)), small(tmp_path)))
    methods = methods_of(WorldsChoice(methods=("hi_ppo", "srpt"), policies=tuple(files)))
    assert [(each.name, each.policy) for each in methods] == [
        *(("hi_ppo", str(file)) for file in files),
        ("srpt", ""),
    ]
    rows, _ = play_worlds(WorldSuite(WorldGround("four-hubs", table()), methods), [DRAW])
    assert [row["policy"] for row in rows] == [*map(str, files), ""]
    ours, theirs = rows[:2], rows[2]
    told = evidence(rows)["ratios"]["hi_ppo"]["srpt"]["priced_s"]
    assert told["mean"] == pytest.approx(np.mean([row["priced_s"] for row in ours]) / theirs["priced_s"])


def test_a_file_that_is_no_policy_is_told(tmp_path: Path):
    other = tmp_path / "other.npz"
    other.write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"other\.npz"):
        methods_of(WorldsChoice(policies=(other,)))


def test_jobs_may_come_as_in_a_trace():
    """All of the trace's jobs come in pairs, ten minutes apart from the next pair."""
    came = np.repeat(600.0 * np.arange(100), 2)
    trace = JobWorkload.of_columns({"arrival_s": came, "duration_s": np.full(200, 60.0)})
    drawn, like = (WorldGround("four-hubs", table(), fit).scene(DRAW).workload for fit in (None, fitted(trace)))
    assert len(like) == len(drawn) == DRAW.jobs
    assert not np.array_equal(like.arrival_s, drawn.arrival_s)
