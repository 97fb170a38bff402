"""``hippo.watch`` and ``hippo.evaluate``: a link that collapses in the middle of a trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import hippo
from hippo.front_door.networks import suite_of

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


def test_what_may_be_compressed_needs_a_worth_and_then_everybody_may(toy, collapse):
    with pytest.raises(hippo.InputError, match="is needed with"):
        hippo.evaluate(replace(toy, allow_compression=True), collapse, ["static"])
    with pytest.raises(hippo.InputError, match="nothing may be compressed"):
        replace(toy, compression_worth=0.9)
    with pytest.raises(hippo.InputError, match="is out of range"):
        replace(toy, allow_compression=True, compression_worth=1.5)
    allowed = replace(toy, allow_compression=True, compression_worth=0.9)
    squeezed, plain = (hippo.evaluate(each, collapse, ["static", "even", "hindsight"]) for each in (allowed, toy))
    assert squeezed["compression_worth"] == 0.9
    assert "compression_worth" not in plain
    assert not any(plan["compression"] for plan in plain["plans"])
    assert all(each["of_hindsight"] <= 1.0 + 1e-9 for each in squeezed["methods"].values())


def test_a_suite_is_played_by_parts():
    found = suite_of(hippo.SuiteChoice(methods=("static",), parts=("main", "load"), seeds=2))
    assert (found.seeds, found.load) == (2, 2)
    assert (found.held, found.ablated, found.timed, found.large, found.movement, found.fronts) == (0,) * 6
    assert found.terms.runtime == "hippo"
    whole = suite_of(hippo.SuiteChoice(methods=("static",), seeds=2))
    assert (whole.held, whole.large, whole.movement) == (2, 2, 2)
    with pytest.raises(hippo.InputError, match="unknown part of the suite 'mian'.*'main'"):
        suite_of(hippo.SuiteChoice(parts=("mian",)))


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
