"""Golden pieces of text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hippo.decide.decision import GIVEN
from hippo.plan.plan import Compression, Pipeline, Plan, Relay, ScheduleChoice, Stage, Sync
from hippo.problem.catalogue.models import model
from hippo.report import text
from hippo.report.story import PlanStory


def stage(domain: str, start: int, stop: int, tp: int = 8, dp: int = 4) -> Stage:
    return Stage(domain, (start, stop), tp, dp, ())


TWO_DOMAINS = Pipeline((stage("beijing", 0, 24), stage("guizhou", 24, 53), stage("guizhou", 53, 82)), 64)


def test_stages_in_a_row_of_one_kind_are_told_together() -> None:
    assert text.pipeline_line(TWO_DOMAINS) == "beijing [0-24) tp8 dp4 -> guizhou [24-82) pp2 tp8 dp4"


def test_a_change_of_degrees_is_told() -> None:
    pipeline = Pipeline((stage("a", 0, 2, tp=4), stage("a", 2, 4, tp=2), stage("b", 4, 6), stage("a", 6, 8, tp=2)), 1)
    assert text.pipeline_line(pipeline) == "a [0-2) tp4 dp4 -> a [2-4) tp2 dp4 -> b [4-6) tp8 dp4 -> a [6-8) tp2 dp4"


def test_pipelines_alike_share_a_line() -> None:
    other = Pipeline((stage("wuhu", 0, 82),), 1)
    assert text.pipeline_lines(Plan((TWO_DOMAINS, other, TWO_DOMAINS), 1)) == (
        "2 x  beijing [0-24) tp8 dp4 -> guizhou [24-82) pp2 tp8 dp4, 64 micro-batches",
        "wuhu [0-82) tp8 dp4, 1 micro-batch",
    )


def test_settings_leave_out_what_does_not_apply() -> None:
    assert dict(text.settings(Plan((TWO_DOMAINS,), 2))) == {
        "micro-batch": "2 sequences",
        "schedule": "1f1b",
        "recompute": "none",
        "sharding": "none",
        "precision": "bf16",
        "replicas agree": "every step (all-reduce)",
    }


@pytest.mark.parametrize(("way", "said"), [("two-level", "on two levels"), ("ring", "around one ring")])
def test_settings_tell_which_way_replicas_of_several_domains_sum(way: str, said: str) -> None:
    apart = Plan((Pipeline((stage("beijing", 0, 82),), 1), Pipeline((stage("wuhu", 0, 82),), 1)), 1)
    assert dict(text.settings(replace(apart, sync=Sync(all_reduce=way))))["replicas agree"] == (
        f"every step (all-reduce {said})"
    )


def test_what_no_planner_looks_for_is_said_where_it_is_called_for(small_story: PlanStory) -> None:
    small = small_story.problem
    assert text.not_searched(small) == ""
    long = small.with_workload(seq=65_536)
    lacks = "Context parallelism is not searched: hippo's executor has none (--runtime megatron or torch has)."
    assert text.not_searched(replace(long, runtime="hippo")) == lacks
    assert text.not_searched(replace(long, runtime="megatron")) == ""  # there it is
    assert text.not_searched(replace(small, model=model("mixtral-8x7b"))) == ""  # expert parallelism is


def test_what_is_assumed_is_said_of_several_domains(small_story: PlanStory) -> None:
    small = small_story.problem
    under = replace(small, runtime="megatron")
    assert text.assumed_text(under, domains=2).startswith("Assumed: NCCL over a WAN was not measured")
    assert text.assumed_text(under, domains=1) == text.assumed_text(small, domains=2) == ""


def test_a_plan_that_was_given_was_found_by_nobody() -> None:
    assert text.found_by(GIVEN, (), 0.4) == "Plan as given."


def test_settings_tell_what_is_special() -> None:
    plan = replace(
        Plan((TWO_DOMAINS,), 1),
        schedule=ScheduleChoice("interleaved", 12),
        interleave=2,
        context_parallel=4,
        expert_parallel=8,
        relays=(Relay("a", "b", "c"),),
        compression=(Compression("a", "b", "fp8"),),
        sync=Sync("local_sgd", 64),
    )
    told = dict(text.settings(plan))
    assert told["schedule"] == "interleaved, at most 12 micro-batches live, 2 chunks a stage"
    assert told["context parallel"] == "4"
    assert told["expert parallel"] == "8"
    assert told["relay"] == "a -> b through c"
    assert told["compression"] == "a -> b as fp8"
    assert told["replicas agree"] == "local SGD, every 64 steps"


@pytest.mark.parametrize(
    ("gap", "bound", "said"),
    [
        (None, None, "Nothing is proven about the distance to the optimum."),
        (0.0, 11.0, "Proven by exact: no plan that it knows is quicker, by the cost model."),
        (
            0.004,
            10.96,
            "Proven by exact to be within 0.4 % of the best plan that it knows (none takes less than 11.0 s).",
        ),
        (0.0002, None, "Proven by exact to be less than 0.1 % from the best plan that it knows."),
    ],
)
def test_gap(small_story: PlanStory, gap: float | None, bound: float | None, said: str) -> None:
    problem = small_story.problem
    beside = "" if gap is None else " It knows no groups of unequal size or unlike stages in a domain."
    assert text.gap_sentence(problem, gap, bound, "exact") == said + beside
    assert text.gap_sentence(problem, gap, bound, "brute") == said.replace("exact", "brute")  # it tries those, too


@pytest.mark.parametrize(
    ("gap", "said"), [(None, "–"), (0.0, "0 %"), (0.0002, "< 0.1 %"), (0.004, "0.4 %"), (0.2, "20 %")]
)
def test_gap_in_a_table(gap: float | None, said: str) -> None:
    assert text.gap_text(gap) == said


@pytest.mark.parametrize(
    ("amount", "said"),
    [(0, "$0"), (0.0032, "$0.0032"), (0.02, "$0.02"), (0.5, "$0.50"), (13.1, "$13.10"), (1234.4, "$1,234")],
)
def test_usd(amount: float, said: str) -> None:
    assert text.usd(amount) == said


@pytest.mark.parametrize(("value", "said"), [(11.0, "best"), (11.005, "best"), (13.2, "+20 %"), (37.4, "x 3.40")])
def test_versus(value: float, said: str) -> None:
    assert text.versus(value, 11.0) == said


def test_short_count() -> None:
    assert [text.short_count(n) for n in (12, 4_194_304, 70.6e9, 1.2e12)] == ["12.0", "4.19 M", "70.6 B", "1.20 T"]
