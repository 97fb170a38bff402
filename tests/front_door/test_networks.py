"""``hippo.watch`` and ``hippo.evaluate``: a link that collapses in the middle of a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

import hippo

EPOCHS = 8


@pytest.fixture
def toy():
    return hippo.problem(model="llama-3-8b", cluster="toy", global_batch=16, seq=1024)


@pytest.fixture
def collapse(tmp_path: Path) -> Path:
    """Both directions of the toy every minute: 8 Gbit/s for three minutes, then a tenth."""
    rows = [
        f"{60 * epoch},{pair},{8.0 if epoch < 3 else 0.8},20\n"
        for epoch in range(EPOCHS)
        for pair in ("east,west", "west,east")
    ]
    path = tmp_path / "net.csv"
    path.write_text("time_s,src,dst,bandwidth_gbps,latency_ms\n" + "".join(rows))
    return path


def test_a_trace_is_watched_epoch_by_epoch(toy, collapse):
    seen = []
    story = hippo.watch(toy, collapse, method="receding_horizon", watcher=lambda world: seen.append)
    assert [moment.epoch.view.epoch for moment in seen] == list(range(EPOCHS))
    document = story.document()
    assert set(document["work"]) == {"receding_horizon", "keeping", "hindsight"}
    assert document["work"]["keeping"]["of_hindsight"] <= 1.0 + 1e-9
    coarse = hippo.watch(toy, collapse, method="static", epoch_s=120)
    assert coarse.document()["epochs"] == EPOCHS / 2


def test_methods_are_held_against_hindsight(toy, collapse):
    document = hippo.evaluate(toy, collapse, ["static", "greedy", "hindsight"])
    assert list(document["methods"]) == ["static", "greedy", "hindsight"]
    assert all(each["of_hindsight"] <= 1.0 + 1e-9 for each in document["methods"].values())
    assert document["methods"]["hindsight"]["of_hindsight"] == pytest.approx(1.0)


def test_errors_name_arguments(toy, collapse):
    with pytest.raises(hippo.InputError, match=r"^method: unknown method 'gready'.*'greedy'"):
        hippo.watch(toy, collapse, method="gready")
    with pytest.raises(hippo.InputError, match=r"^epoch: must be from 1 to 86400 seconds \(got 0\)"):
        hippo.watch(toy, collapse, method="static", epoch_s=0)
    with pytest.raises(hippo.InputError, match="^policy: only hi_ppo takes a policy"):
        hippo.evaluate(toy, collapse, ["static"], policy="mine.policy")
    with pytest.raises(hippo.InputError, match="^forecast: unknown forecast"):
        hippo.evaluate(toy, collapse, forecast="tea-leaves")
    with pytest.raises(hippo.InputError, match="^families: unknown family of networks 'nothing'"):
        hippo.evaluate_suite(hippo.SuiteChoice(families=("nothing",)))
