"""``hippo simulate``: engines agree, noise is seeded, a trace counts each state as long as it holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.dispatch.drawn_draws import lazy_weights

from hippo.dispatch.guard import followed
from hippo.plan.codec import load_plan
from hippo.simulate.ordering import ordering

HEADER = "time_s,src,dst,bandwidth_gbps,latency_ms\n"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "two-domains.json"


@pytest.fixture
def trace(tmp_path):
    """Writes a network trace of the toy (8 Gbit/s and 20 ms each way at rest)."""

    def written(*rows: str):
        path = tmp_path / "net.csv"
        path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
        return path

    return written


def test_the_document(hippo, toy_plan):
    document = hippo("simulate", toy_plan, "--json").document
    assert document["step_time_s"] > 0
    assert set(document["utilization"]) == {"east", "west"}
    assert all(0 < share < 1 for share in document["utilization"].values())
    assert set(document["gb_per_step"]) == {"east->west", "west->east"}
    assert "mean_s" not in document


def test_it_says_what_planning_said(hippo, toy_plan, toy_folder):
    planned = json.loads((toy_folder / "plan.json").read_text())
    assert planned["hippo_plan"] == 1
    played = hippo("simulate", toy_plan, "--json").document
    explained = hippo("plan", "--model", "llama-3-8b", "--cluster", "toy", "--planner", "crosspipe", "--json").document
    assert played["step_time_s"] == pytest.approx(explained["score"]["step_time_s"], rel=1e-12)
    assert sum(played["gb_per_step"].values()) == pytest.approx(explained["score"]["cross_domain_gb_per_step"])


def test_engines_agree(hippo, toy_plan, refused, tmp_path):
    asked = {engine: ("simulate", toy_plan, "--engine", engine) for engine in ("fast", "reference", "analytic")}
    fast, reference = (hippo(*asked[engine], "--json").document["step_time_s"] for engine in ("fast", "reference"))
    assert reference == pytest.approx(fast, rel=1e-9)
    assert "does not know orders that were made for a plan" in refused(*asked["analytic"])
    document = json.loads(toy_plan.read_text())
    document["schedule"] = {"name": "1f1b"}
    document["pipelines"][0].pop("order")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    plain = [
        hippo("simulate", path, "--engine", name, "--json").document["step_time_s"] for name in ("fast", "analytic")
    ]
    assert plain[1] == pytest.approx(plain[0], rel=0.5)  # a closed form: no queues


def test_no_noise_no_spread(hippo, toy_plan):
    document = hippo("simulate", toy_plan, "--fluctuation", 0, "--samples", 5, "--json").document
    for key in ("mean_s", "p50_s", "p95_s"):
        assert document[key] == pytest.approx(document["step_time_s"])
    assert document["samples"] == 5


def test_noise_spreads_and_the_seed_repeats_it(hippo, toy_plan):
    asked = ("simulate", toy_plan, "--fluctuation", 0.3, "--samples", 40, "--json")
    first, again, other = hippo(*asked), hippo(*asked), hippo(*asked, "--seed", 1)
    assert first.out == again.out
    assert first.document["mean_s"] != other.document["mean_s"]
    assert first.document["p50_s"] < first.document["p95_s"]


def test_samples_alone_take_the_usual_noise(hippo, toy_plan):
    document = hippo("simulate", toy_plan, "--samples", 3, "--json").document
    assert document["fluctuation"] == 0.2


def test_fluctuation_alone_takes_the_usual_number_of_plays(hippo, toy_plan):
    document = hippo("simulate", toy_plan, "--fluctuation", 0.1, "--json").document
    assert document["samples"] == 1000


def test_a_trace_at_rest_changes_nothing(hippo, toy_plan, trace):
    document = hippo("simulate", toy_plan, "--trace", trace("0,east,west,8,20"), "--json").document
    assert document["instants"] == 1
    for key in ("mean_s", "p50_s", "p95_s"):
        assert document[key] == pytest.approx(document["step_time_s"])
    assert document["stalled_share"] == 0


def test_each_state_counts_as_long_as_it_holds(hippo, toy_plan, trace):
    slow = hippo("simulate", toy_plan, "--trace", trace("0,east,west,2,20"), "--json").document["mean_s"]
    rows = ("0,east,west,8,20", "90,east,west,2,20", "100,east,west,8,20")  # the last holds 10 s, as the one before
    document = hippo("simulate", toy_plan, "--trace", trace(*rows), "--json").document
    quick = document["step_time_s"]
    assert slow > 1.5 * quick
    assert document["instants"] == 3
    steps_per_s = 100 / 110 / quick + 10 / 110 / slow
    assert document["mean_s"] == pytest.approx(1 / steps_per_s)
    assert document["p50_s"] == pytest.approx(quick)
    assert document["p95_s"] == pytest.approx(slow)  # slow for 9 % of the time


def test_an_outage_stalls_a_plan_that_needs_the_link(hippo, toy_plan, trace):
    file = trace("0,east,west,8,20", "30,east,west,0,20", "60,east,west,8,20", "90,east,west,8,20")
    answer = hippo("simulate", toy_plan, "--trace", file, "--json")
    document = answer.document
    assert document["stalled_share"] == pytest.approx(0.25)
    assert document["mean_s"] == pytest.approx(document["step_time_s"] / 0.75)
    assert document["p50_s"] == pytest.approx(document["step_time_s"])
    assert document["p95_s"] is None
    assert "stands still for 25%" in hippo("simulate", toy_plan, "--trace", file).err


def test_an_outage_all_along(hippo, toy_plan, trace):
    document = hippo("simulate", toy_plan, "--trace", trace("0,east,west,0,20"), "--json").document
    assert document["stalled_share"] == 1
    assert (document["mean_s"], document["p50_s"], document["p95_s"]) == (None, None, None)


def test_a_trace_with_noise(hippo, toy_plan, trace):
    asked = ("simulate", toy_plan, "--trace", trace("0,east,west,8,20", "9,east,west,7,20"), "--json")
    assert hippo(*asked, "--fluctuation", 0.3).document["mean_s"] != hippo(*asked).document["mean_s"]


def test_people_read_the_spread(hippo, toy_plan):
    answer = hippo("simulate", toy_plan, "--samples", 5)
    assert answer.code == 0
    for words in ("step time", "median", "95th percentile", "east->west"):
        assert words in answer.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--engine", "quick"), "--engine"),
        (("--engine", "astra", "--samples", 3), "--engine"),
        (("--engine", "astra", "--astra-binary", "absent-binary"), "--astra-binary"),
        (("--astra-binary", "absent-binary"), "--engine astra"),
        (("--engine", "reference", "--samples", 3), "--engine"),
        (("--engine", "analytic", "--trace", "net.csv"), "--engine"),
        (("--samples", 0), "--samples"),
        (("--samples", 10_000_000), "--samples"),
        (("--samples", "few"), "--samples"),
        (("--fluctuation", 1), "--fluctuation"),
        (("--fluctuation", -0.1), "--fluctuation"),
        (("--fluctuation", "nan"), "--fluctuation"),
        (("--seed", -1), "--seed"),
        (("--trace", "absent.csv"), "absent.csv"),
        (("--trace", "net.csv", "--samples", 5), "--samples"),
    ],
)
def test_wrong_options(refused, toy_plan, options, said):
    assert said in refused("simulate", toy_plan, *options)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((), "no rows"),
        (("0,east,mars,8,20",), "mars"),
        (("0,east,west,-8,20",), "-8"),
        (("0,east,west,nan,20",), "nan"),
    ],
)
def test_a_wrong_trace(refused, toy_plan, trace, rows, said):
    message = refused("simulate", toy_plan, "--trace", trace(*rows))
    assert "net.csv" in message
    assert said in message


def test_a_plan_file_that_breaks_a_rule(refused, toy_plan, tmp_path):
    document = json.loads(toy_plan.read_text())
    document["pipelines"][0]["stages"][0]["tp"] += 1
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    assert str(path) in refused("simulate", path)


@pytest.fixture
def astra(tmp_path):
    """The small player of traces, where ASTRA-sim's binary is asked for."""
    player = Path(__file__).parents[1] / "simulate" / "astra" / "player.py"
    script = tmp_path / "AstraSim_Analytical_Congestion_Aware"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{player}" "$@"\n')
    script.chmod(0o755)
    return script


def test_astra_is_held_against_fast(hippo, toy_plan, astra):
    known = hippo("simulate", toy_plan, "--json").document
    document = hippo("simulate", toy_plan, "--engine", "astra", "--astra-binary", astra, "--json").document
    assert document["step_time_s"] == pytest.approx(known["step_time_s"], rel=1e-8)
    assert document["utilization"] == pytest.approx(known["utilization"])
    told = document["astra"]
    assert told["fast_step_time_s"] == known["step_time_s"]
    assert abs(told["difference"]) < 1e-3
    assert told["largest_difference_s"] < 1e-6
    assert told["nodes_missing"] == 0
    assert told["operations_compared"] > 100
    assert told["binary"] == astra.name


def test_people_read_how_far_astra_is_off(hippo, toy_plan, astra, monkeypatch):
    monkeypatch.setenv("HIPPO_ASTRA", str(astra))
    answer = hippo("simulate", toy_plan, "--engine", "astra")
    assert answer.code == 0
    assert "step time" in answer.out
    assert "the farthest off is" in answer.err


def test_without_astra_there_is_a_plain_word(refused, toy_plan, tmp_path, monkeypatch):
    monkeypatch.delenv("HIPPO_ASTRA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "which hippo does not bring" in refused("simulate", toy_plan, "--engine", "astra")


def test_what_carries_the_messages_counts(hippo, toy_plan):
    seconds = {
        name: hippo("simulate", toy_plan, "--transport", name, "--json").document["step_time_s"]
        for name in ("ideal", "hippo", "torch")
    }
    own = hippo("simulate", toy_plan, "--json").document
    assert (own["runtime"], own["transport"], own["step_time_s"]) == ("hippo", "hippo", seconds["hippo"])
    assert seconds["ideal"] < seconds["hippo"] < seconds["torch"]


@pytest.mark.parametrize("name", ["hippo", "torch"])
def test_a_step_meets_what_moves_while_it_runs(hippo, toy_plan, trace, name):
    """Within the first step a link falls to a tenth; a step that begins later has it so all the time."""
    rest = "0,east,west,8,20"
    still = trace(rest)
    base = hippo("simulate", toy_plan, "--transport", name, "--trace", still, "--json").document["mean_s"]
    assert base == pytest.approx(hippo("simulate", toy_plan, "--transport", name, "--json").document["step_time_s"])
    moving = trace(rest, f"{base / 2},east,west,0.8,20")
    moved = hippo("simulate", toy_plan, "--transport", name, "--trace", moving, "--json").document
    assert base < moved["mean_s"] < moved["p95_s"]  # the mean of a step that is half slow and one that is slow


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--transport", "pigeon"), "deepspeed, hippo, hippo:live, ideal, megatron, torch"),
        (("--transport", "torch", "--engine", "analytic"), "--engine fast"),
    ],
)
def test_transports_that_make_no_sense(hippo, toy_plan, words, named):
    result = hippo("simulate", toy_plan, *words)
    assert result.code == 2
    assert named in result.err


@pytest.mark.parametrize("name", ["hippo", "megatron", "torch", "deepspeed"])
def test_both_engines_play_the_messages_of_every_runtime(hippo, name):
    seconds = [
        hippo("simulate", EXAMPLE, "--transport", name, "--engine", each, "--json").document["step_time_s"]
        for each in ("fast", "reference")
    ]
    assert seconds[0] == pytest.approx(seconds[1])


def test_a_dispatcher_plays_the_pipelines_alone(hippo, toy_plan):
    asked = ("simulate", toy_plan, "--samples", 20, "--fluctuation", 0.3)
    by = {name: hippo(*asked, "--dispatch", name, "--json").document for name in ("fixed", "hint", "learned")}
    rows = {name: document["dispatch"]["pipelines"][0] for name, document in by.items()}
    assert by["learned"]["dispatch"]["by"] == "learned"
    assert rows["fixed"]["mean_s"] == rows["fixed"]["in_order_mean_s"] == rows["learned"]["in_order_mean_s"]
    for row in rows.values():
        assert 0 < row["floor_s"] <= row["mean_s"]
        assert row["p50_s"] <= row["p95_s"]
    assert "followed" not in rows["hint"]
    shown, follows = hippo(*asked, "--dispatch", "learned").out, rows["learned"]["followed"]
    assert ("by the policy" if follows == "policy" else follows) in " ".join(shown.split())


def test_where_the_policy_is_not_trusted_the_base_is_named(hippo, slow_policy):
    """What runs is a hint, and is called so."""
    base = followed(ordering(*load_plan(EXAMPLE)), lazy_weights(), 0.2)
    asked = ("simulate", EXAMPLE, "--dispatch", "learned", "--samples", 5)
    (row,) = hippo(*asked, "--json").document["dispatch"]["pipelines"]
    shown = " ".join(hippo(*asked).out.split())
    assert row["followed"] == base
    assert "by its base" in shown
    assert "by the policy" not in shown
    assert f"the policy was slower in trial plays: its base, {base}, is followed" in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--dispatch", "learnt"), "did you mean 'learned'"),
        (("--dispatch", "hint", "--trace", "net.csv"), "--trace: does not go with --dispatch"),
        (("--dispatch", "hint", "--transport", "hippo"), "--transport: does not go with --dispatch"),
        (("--dispatch", "hint", "--engine", "reference"), "--engine: plays one step as it is"),
    ],
)
def test_what_a_dispatcher_does_not_go_with(refused, toy_plan, words, told):
    assert told in refused("simulate", toy_plan, *words)


def test_the_first_lines_name_the_plans_runtime(hippo, toy_plan, tmp_path):
    asked = json.loads(toy_plan.read_text())
    for runtime, said in (("hippo", "under hippo's executor"), (None, "ideal: no runtime does this")):
        asked["problem"].pop("runtime", None)
        asked["problem"] |= {} if runtime is None else {"runtime": runtime}
        path = tmp_path / "plan.json"  # without a runtime: as plan files were written before there were any
        path.write_text(json.dumps(asked))
        answer = hippo("simulate", path)
        first, second, *_ = answer.out.splitlines()
        assert (first, second.endswith(said)) == ("llama-3-8b on toy", True)
    sent = hippo("simulate", path, "--transport", "hippo")
    assert sent.out.splitlines()[1].endswith("under hippo's executor")
    assert "the plan was made for no runtime (ideal)" in sent.err
    assert "names no runtime: its times are ideal, no runtime does this" in sent.err


def test_what_is_not_known_of_a_time_is_said_as_plan_says_it(hippo, toy_plan, tmp_path):
    asked = json.loads(toy_plan.read_text()) | {"schedule": {"name": "1f1b"}}
    for line in asked["pipelines"]:
        line.pop("order", None)
        line.pop("warm_up", None)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(asked))
    told = hippo("simulate", path, "--transport", "megatron", "--json").document
    assert told["interval_of"]["only_if"] == "links fill"
    assert told["step_time_interval_s"][0] < told["step_time_s"] < told["step_time_interval_s"][1]
    quick, slow = told["assumed_span_s"]
    assert quick <= told["step_time_s"] <= slow
    said = hippo("simulate", path, "--transport", "megatron").out
    assert "under Megatron-LM" in said
    assert " if links fill)" in said
    assert "as assumed" in said
