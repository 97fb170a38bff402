"""What the terminal shows, as golden text (made by printing it at the width named, then read)."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType
from tests.report.worlds import decision_of

from hippo.cost.stage import StageCost
from hippo.decide.decision import Decision, PlannerRow
from hippo.planners.base import Status
from hippo.report import terminal
from hippo.report.story import PlanStory


def printed(view: RenderableType, width: int = 100) -> str:
    """Plain text, without the blank line that parts it from what stands before."""
    stream = io.StringIO()
    Console(file=stream, width=width).print(view)
    assert not any(line.endswith(" ") for line in stream.getvalue().splitlines())
    return stream.getvalue().removeprefix("\n")


PLAN = """\
toy-4b on hand-made
48 A100-SXM-80GB GPUs in 3 domains, 8 sequences of 2,048 tokens a step, bf16, ideal: no runtime does
this

step time         11.0 s  16.4 k tokens a step
tokens/s           1,490  on 4 of 48 GPUs
MFU                 31 %  of the GPUs' peak
domains busy        60 %  40 % over all domains
peak memory      55.0 GB  of 80.0 GB on the fullest GPU
cost a step        $0.20  $0.02 egress
between domains  1.00 GB  sent each step
Proven by exact: no plan that it knows is quicker, by the cost model. It knows no groups of unequal
size or unlike stages in a domain.
Found by exact in 0.40 s of CPU; 2 planners took 0.41 s together.

Plan
  beijing [0-12) tp2 dp1 -> guizhou [12-24) tp2 dp1, 2 micro-batches
  micro-batch 1 sequence, schedule 1f1b, recompute none, sharding none, precision bf16, replicas
  agree every step (all-reduce)
"""


def test_plan(small_story: PlanStory) -> None:
    assert printed(terminal.plan_view(decision_of(small_story))) == PLAN


def test_no_plan(small_story: PlanStory) -> None:
    nothing = Decision(small_story.problem, Status.INFEASIBLE, "exact", rejected={"memory": 1200, "devices": 3})
    told = printed(terminal.plan_view(nothing))
    assert "No plan fits." in told
    assert told.index("memory") < told.index("devices")
    assert "1,200" in told


def test_what_a_limit_left_undone_and_how_long_it_all_took(small_story: PlanStory) -> None:
    decision = decision_of(small_story)
    assert printed(terminal.times_view(decision)) == ""
    rows = (replace(decision.rows[0], cut_short="Cut short by its limit."), *decision.rows[1:])
    decision = replace(decision, rows=rows, gap=0.1, reasons_s=4.2)
    assert "\nCut short by its limit.\n" in printed(terminal.plan_view(decision))
    assert "Not to the end\n- exact: Cut short by its limit.\n" in printed(terminal.comparison_view(rows))
    assert printed(terminal.times_view(decision)) == "Planning took 0.41 s of CPU, the reasons 4.20 s.\n"


COMPARISON = """\
planner         status       step time   vs best   busy   GPUs   price/step   egress/step    memory   gap
─────────────────────────────────────────────────────────────────────────────────────────────────────────
exact           optimal         11.0 s      best   60 %      4        $0.20         $0.02   55.0 GB   0 %
single_domain   feasible        14.5 s     +32 %   90 %      2        $0.20            $0   55.0 GB     –
zero            infeasible           –         –      –      –            –             –         –     –
left out for want of width: MFU, planning

Without a plan
- zero: beijing holds no shard of it.
"""

NARROW = """\
planner         step time   vs best
───────────────────────────────────
exact              11.0 s      best
single_domain      14.5 s     +32 %
zero                    –         –
"""


def test_comparison(small_story: PlanStory) -> None:
    assert printed(terminal.comparison_view(small_story.rows, best="exact"), 110) == COMPARISON


def test_comparison_on_a_narrow_terminal(small_story: PlanStory) -> None:
    told = printed(terminal.comparison_view(small_story.rows, best="exact"), 36)
    assert told.startswith(NARROW)
    assert "left out for want of width: status, busy," in told.replace("\n", " ")


def test_a_dropped_plan_says_why(small_story: PlanStory) -> None:
    rows = (*small_story.rows[:2], PlannerRow("even", Status.FEASIBLE, dropped="stage 3 has no devices"))
    told = printed(terminal.comparison_view(rows))
    assert "dropped" in told
    assert "- even: stage 3 has no devices" in told


def test_no_colour_where_there_is_no_terminal(small_story: PlanStory) -> None:
    told = printed(terminal.plan_view(decision_of(small_story)))
    assert "\x1b" not in told


def test_names_are_never_markup(story_of_domains: Callable[..., PlanStory]) -> None:
    story = story_of_domains(("[red]north[/red]", "[link=http://x]east", "south"), model="[blink]toy")
    told = printed(terminal.plan_view(decision_of(story)))
    assert "[blink]toy on hand-made" in told
    assert "[red]north[/red] [0-12) tp2 dp1 -> [link=http://x]east [12-24)" in told
    reasons = printed(terminal.reasons_view([reason.sentence() for reason in story.reasons]), 200)
    assert "[red]north[/red]" in reasons


def test_reasons_hang_under_their_dash() -> None:
    told = printed(terminal.reasons_view(["one two three four five"]), 12)
    assert told == "Why\n- one two\n  three four\n  five\n"


def test_front_is_quickest_first(small_story: PlanStory) -> None:
    told = printed(terminal.front_view(small_story.front[::-1], hypervolume=0.5), 120)
    assert told.index("11.0 s") < told.index("14.5 s")
    assert "2 plans on the front, hypervolume 0.500" in told
    assert "beijing [0-24) tp2 dp1, 2 micro-batches" in told


def test_front_leaves_out_who_is_as_good_as_a_row_and_keeps_its_ends(small_story: PlanStory) -> None:
    plan, score = small_story.front[0]
    score = replace(score, egress_usd_per_step=10.0)
    rows = [replace(score, step_time_s=factor * score.step_time_s) for factor in (1.0, 1.003, 1.006, 1.009)]
    rows[2] = replace(rows[2], egress_usd_per_step=9.95)
    rows[3] = replace(rows[3], utilization=score.utilization + 0.001)
    told = printed(terminal.front_view([(plan, each) for each in rows], hypervolume=0.5), 120)
    assert told.count("micro-batches") == 3, "the quickest, the cheapest and the busiest"
    assert "4 plans on the front, 1 of them within 1.0 % of a row in all three (--json has them)" in told
    chain = [replace(score, step_time_s=1.006**at * score.step_time_s) for at in range(5)]
    assert printed(terminal.front_view([(plan, each) for each in chain]), 120).count("micro-batches") == 3
    assert "0 plans" in printed(terminal.front_view([]), 120)


def test_simulation() -> None:
    document = {
        "step_time_s": 12.0,
        "p95_s": 13.5,
        "utilization": {"beijing": 0.5},
        "gb_per_step": {"beijing -> guizhou": 4.25},
    }
    told = printed(terminal.simulation_view(document))
    assert "step time        12.0 s" in told
    assert "95th percentile  13.5 s" in told
    assert "50 %" in told
    assert "4.25" in told


def test_stages_and_memory(small_story: PlanStory) -> None:
    cost = StageCost(0.01, 0.02, 0.01, 1e6, 0.1, 0.05, 1e9, 1e9, 1e12, tp_s=0.003)
    told = printed(terminal.stages_view(small_story.plan, [cost, cost]), 110)
    assert "10.0 ms" in told
    assert "3.00 ms" in told
    memory = printed(terminal.memory_view(small_story.plan, small_story.memory, gpu_bytes=42e9), 120)
    rows = [line.split() for line in memory.splitlines() if line[:5].strip().isdigit()]
    assert [row[-3] for row in rows] == ["43.0", "41.0"]
    assert rows[0][-2:] == ["102", "%"]


VALIDATION = """\
Step time against published rows
family       rows   refused    MAPE   median     bias   worst   pairs right   clear ones
────────────────────────────────────────────────────────────────────────────────────────
megatron       23         0   6.1 %    4.2 %   -1.2 %       –             –            –
bigscience     59         2   7.5 %    6.0 %   +0.5 %       –          81 %            –
overall        82         2   7.1 %    5.5 %   +0.0 %       –          81 %            –
"""


def test_validation() -> None:
    def figures(n: int, refused: int, *values: float | None) -> dict[str, float | None]:
        return {"n": n, "refused": refused, **dict(zip(("mape", "median", "bias", "pairs_right"), values, strict=True))}

    document = {
        "overall": figures(82, 2, 0.071, 0.055, 0.0, 0.81),
        "families": {
            "megatron": figures(23, 0, 0.061, 0.042, -0.012, None),
            "bigscience": figures(59, 2, 0.075, 0.060, 0.005, 0.81),
        },
    }
    assert printed(terminal.validation_view(document)) == VALIDATION


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_every_view_prints_at_any_width(small_story: PlanStory, width: int) -> None:
    decision = replace(decision_of(small_story), rejected={"memory": 3})
    views = [
        terminal.plan_view(decision),
        terminal.comparison_view(decision.rows),
        terminal.front_view(small_story.front),
        terminal.memory_view(small_story.plan, small_story.memory, gpu_bytes=80e9),
    ]
    for view in views:
        assert all(len(line) <= width for line in printed(view, width).splitlines())
