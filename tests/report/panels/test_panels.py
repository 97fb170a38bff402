"""Figures of the other panels, on the hand-made story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hippo.decide import reasons
from hippo.plan.plan import Pipeline, Relay, Stage
from hippo.report import leads
from hippo.report.charts import SMALL, around, text_box, ticks
from hippo.report.html import report
from hippo.report.panels.cuts import strips
from hippo.report.panels.front import front_chart
from hippo.report.panels.memory import memory_chart
from hippo.report.panels.network import network, traffic
from hippo.report.panels.planners import alternatives, entries
from hippo.report.panels.reasons import LABELS, reason_groups, waterfall
from hippo.report.panels.timeline import rank_shares
from hippo.report.story import PlanStory
from hippo.report.text import pipeline_lines


# ------------------------------------------------------------------------------------------------------------ cuts
def test_one_cut_between_two_domains(small_story: PlanStory) -> None:
    (strip,) = strips(small_story)
    assert [(block.domain, block.start, block.stop) for block in strip.blocks] == [
        ("beijing", 0, 12),
        ("guizhou", 12, 24),
    ]
    assert strip.bands == (("beijing", 0, 12), ("guizhou", 12, 24))
    (cut,) = strip.cuts
    assert (cut.layer, cut.source, cut.destination, cut.crosses) == (12, "beijing", "guizhou", True)
    assert cut.mb_per_micro_batch == 250.0
    assert cut.through is None


def with_plan(story: PlanStory, **changes: object) -> PlanStory:
    return replace(story, game=replace(story.game, plan=replace(story.plan, **changes)))


def test_relayed_cut_names_the_domain_between(small_story: PlanStory) -> None:
    relayed = with_plan(small_story, relays=(Relay("beijing", "guizhou", "wuhu"),))
    assert strips(relayed)[0].cuts[0].through == "wuhu"


def test_interleaved_chunks_go_round(small_story: PlanStory) -> None:
    program = replace(small_story.program, down_bytes=np.ones((2, 2)) * 1e6)
    game = replace(small_story.game, plan=replace(small_story.plan, interleave=2), program=program)
    (strip,) = strips(replace(small_story, game=game))
    assert [(b.stage, b.start, b.stop) for b in strip.blocks] == [(1, 0, 6), (2, 6, 12), (1, 12, 18), (2, 18, 24)]
    assert [cut.layer for cut in strip.cuts] == [6, 12, 18]


def test_how_far_stages_run_ahead_is_told(small_story: PlanStory) -> None:
    (pipeline,) = small_story.plan.pipelines
    ahead = with_plan(small_story, pipelines=(replace(pipeline, warm_up=(5, 2)),))
    assert [block.ahead for block in strips(ahead)[0].blocks] == [5, 2]
    assert pipeline_lines(ahead.plan)[0].endswith("2 micro-batches, 2 to 5 ahead")
    text = report(ahead)
    assert "Micro-batches ahead" in text
    assert "5 micro-batches ahead" in text


def test_pipelines_alike_share_a_strip(small_story: PlanStory) -> None:
    stage = Stage("wuhu", (0, 24), 2, 1, ("wuhu/0/0", "wuhu/0/1"))
    pipelines = (small_story.plan.pipelines[0], Pipeline((stage,), 1), Pipeline((stage,), 1))
    assert [strip.count for strip in strips(with_plan(small_story, pipelines=pipelines))] == [1, 2]


# --------------------------------------------------------------------------------------------------------- network
def test_traffic_by_hand(small_story: PlanStory) -> None:
    flows = traffic(small_story)
    assert flows.total_gb == 1.0
    there = flows.rows[0][1]
    assert there is not None
    assert there.gb == 0.5  # two messages of 0.25 GB
    assert there.share == pytest.approx(0.5 / (0.5 * 11))  # of 0.5 GB/s for 11 s
    assert there.usd == pytest.approx(0.5 * 0.02)
    assert flows.busiest is there
    assert flows.rows[0][0] is None


def test_map_draws_arrows_where_something_flows(small_story: PlanStory) -> None:
    drawn = network(small_story, traffic(small_story))
    assert [(edge.flow.source, edge.flow.destination) for edge in drawn.edges if edge.used] == [
        ("beijing", "guizhou"),
        ("guizhou", "beijing"),
    ]
    assert sum(not edge.used for edge in drawn.edges) == 2  # each of the other pairs once
    assert {node.name: node.used_gpus for node in drawn.nodes} == {"beijing": 2, "guizhou": 2, "wuhu": 0}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 12, 16])
def test_dots_and_texts_of_the_map_stay_apart_and_inside(
    story_of_domains: Callable[..., PlanStory], count: int
) -> None:
    story = story_of_domains(tuple(f"a-region-of-the-cloud-{number}" for number in range(count)))
    drawn = network(story, traffic(story))
    texts = [text_box(label.text, label.x, label.y, letter=SMALL, anchor=label.anchor) for label in drawn.labels]
    boxes = [box for node in drawn.nodes for box in (node.boxes[0], around(node.boxes[1:], 0.0))] + texts
    assert texts
    for index, box in enumerate(boxes):
        assert drawn.frame.left < box.left < box.right < drawn.frame.right
        assert drawn.frame.top < box.top < box.bottom < drawn.frame.bottom
        assert not any(box.overlaps(other) for other in boxes[:index])


def test_a_label_tells_both_rates_where_the_directions_differ(small_story: PlanStory) -> None:
    flows = traffic(small_story)
    slower = tuple(replace(flow, gbps=3.0) if flow.source == "guizhou" else flow for flow in flows.flows)
    drawn = network(small_story, replace(flows, flows=slower))
    assert [label.text for label in drawn.labels if label.used] == ["4.00 and 3.00 Gbit/s, 20.0 ms"]


def test_neighbours_in_the_plan_never_share_a_colour(story_of_domains: Callable[..., PlanStory]) -> None:
    story = story_of_domains(tuple(f"domain-{number}" for number in range(12)))
    colours = story.domain_colours
    assert [colours[name] for name in story.domain_order[:2]] == ["--d0", "--d1"]
    assert len(set(colours.values())) == 9


# ---------------------------------------------------------------------------------------------------------- memory
def test_memory_by_hand(small_story: PlanStory) -> None:
    chart = memory_chart(small_story)
    assert [bar.total_gb for bar in chart.bars] == [43.0, 41.0]
    assert chart.bars[0].parts_gb == (10.0, 5.0, 20.0, 4.0, 3.0, 1.0)
    assert (chart.gpu_gb, chart.scale_gb) == (80.0, 80.0)


def test_stages_alike_share_a_bar(small_story: PlanStory) -> None:
    stage, memory = small_story.stages[0], small_story.memory[0]
    wider = with_plan(small_story, pipelines=(Pipeline((stage, replace(stage, layers=(12, 24))), 2),))
    (bar,) = memory_chart(replace(wider, memory=(memory, memory))).bars
    assert bar.count == 2
    assert bar.name == "beijing, layers 0-11 and 1 more alike"


def test_a_stage_too_full_stretches_the_scale(small_story: PlanStory) -> None:
    full = replace(small_story.memory[0], weights_bytes=90e9)
    chart = memory_chart(replace(small_story, memory=(full, small_story.memory[1])))
    assert chart.scale_gb == 123.0
    assert "43.0 GB too much" in leads.memory(chart)


# ---------------------------------------------------------------------------------------------- planners and front
def test_planners_are_ranked_and_the_chosen_one_marked(small_story: PlanStory) -> None:
    rows = entries(small_story)
    assert [entry.row.planner for entry in rows] == ["exact", "single_domain", "zero"]
    assert [entry.chosen for entry in rows] == [True, False, False]
    assert [entry.share for entry in rows] == pytest.approx([11 / 14.5, 1.0, 0.0])
    assert "the next that differs, single_domain, takes 32 % longer. 1 planner found no plan" in leads.planners(rows)


def test_a_hopeless_planner_does_not_flatten_the_others(small_story: PlanStory) -> None:
    game = replace(small_story.game, score=replace(small_story.score, step_time_s=11_000.0))
    slow = replace(small_story.rows[1], planner="zero", best=game)
    rows = entries(replace(small_story, rows=(small_story.rows[0], slow)))
    assert rows[0].share == pytest.approx(1 / 8)
    assert (rows[1].share, rows[1].clipped) == (1.0, True)
    assert rows[1].versus == "x 1,000"


def test_other_ways_to_join_stand_beside_the_plan(small_story: PlanStory) -> None:
    (alone,) = alternatives(replace(small_story, runners_up=small_story.front[1:]))
    assert (alone.joining, alone.domains, alone.versus) == ("one domain", ("beijing",), "+32 %")
    dearer = ((small_story.front[1][0], replace(small_story.score, step_time_s=9.9)),)
    assert alternatives(replace(small_story, runners_up=dearer))[0].versus == "-10 %"


def test_beaten_plans_stand_beside_the_front_unless_hopeless(small_story: PlanStory) -> None:
    plan, score = small_story.front[0]
    beaten = tuple((plan, replace(score, step_time_s=seconds)) for seconds in (16.0, 45.0))
    chart = front_chart(replace(small_story, beaten=beaten))
    assert chart is not None
    assert [dot.score.step_time_s for dot in chart.beaten] == [16.0]  # 45 s is more than four times 11 s
    assert chart.not_drawn == " 1 plan that takes more than 4 times as long as the quickest: not drawn."
    assert all(dot.label_y < chart.floor + 8 for dot in (*chart.dots, *chart.beaten))  # not on the marks of the axis
    assert "Of 4 plans that were looked at, 2 are" in leads.front(replace(small_story, beaten=beaten))


def test_front_chart(small_story: PlanStory) -> None:
    chart = front_chart(small_story)
    assert chart is not None
    quick, cheap = chart.dots
    assert quick.chosen
    assert not cheap.chosen
    assert quick.x < cheap.x
    assert quick.y < cheap.y  # upwards is more egress
    assert (quick.shade, cheap.shade) == (0.0, 1.0)
    assert all(chart.left <= dot.x <= chart.right and chart.top <= dot.y <= chart.floor for dot in chart.dots)


def test_dots_are_labelled_by_who_found_them_else_by_how_they_join(small_story: PlanStory) -> None:
    chart = front_chart(small_story)
    nameless = front_chart(replace(small_story, rows=()))
    assert chart is not None
    assert nameless is not None
    assert [dot.label for dot in chart.dots] == ["exact", "single_domain"]
    assert [dot.label for dot in nameless.dots] == ["pipeline across 2 domains", "one domain"]


def test_no_front_no_chart(wide_story: PlanStory) -> None:
    assert front_chart(wide_story) is None


def test_a_front_of_one_plan_has_axes(small_story: PlanStory) -> None:
    chart = front_chart(replace(small_story, front=small_story.front[1:]))
    assert chart is not None
    assert len(chart.x_ticks) >= 2
    assert "nothing to trade" in leads.front(replace(small_story, front=small_story.front[1:]))


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0.0, 10.0, [0, 2, 4, 6, 8, 10]),
        (10.72, 14.78, [11, 12, 13, 14]),
        (0.0, 0.0216, [0, 0.005, 0.01, 0.015, 0.02]),
        (0.0, 120.0, [0, 25, 50, 75, 100]),
    ],
)
def test_ticks_are_round(low: float, high: float, wanted: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(wanted)


# --------------------------------------------------------------------------------------------------------- reasons
def test_reasons_are_grouped_by_kind(small_story: PlanStory) -> None:
    groups = dict(reason_groups(small_story.reasons))
    assert list(groups) == ["What binds", "Bottleneck", "What links carry"]
    assert len(groups["What links carry"]) == 6


def test_a_sentence_does_not_repeat_its_label() -> None:
    runner_up = reasons.RunnerUp("one domain, wuhu", ("wuhu",), "one domain", 14.5, 0.2, 0.0, 0.32, searched=True)
    dropped = reasons.Dropped("even", "too full")
    assert reason_groups((runner_up, dropped)) == (
        ("Runner-up", ("One domain, wuhu; 14.5 s and $0.20 a step, 32 % worse.",)),
        ("Dropped", ("The plan of even was dropped: too full.",)),
    )


def test_every_kind_of_reason_has_a_label() -> None:
    kinds = {reason.kind for reason in vars(reasons).values() if is_reason(reason)}
    assert len(kinds) >= 16
    assert kinds <= LABELS.keys()


def is_reason(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, reasons.Reason) and thing is not reasons.Reason


def test_waterfall_adds_up(small_story: PlanStory) -> None:
    parts = waterfall(small_story.reasons)
    assert sum(part.share for part in parts) == pytest.approx(1.0)
    assert [part.name for part in parts if part.hatched] == ["Fill, drain, imbalance"]
    assert waterfall(()) == ()


def test_lead_of_the_timeline(small_story: PlanStory) -> None:
    assert leads.timeline(rank_shares(small_story)) == (
        "Ranks compute 55 % of the step on average; 9.1 % goes into agreeing on gradients and the optimizer, 36 % is "
        "bubble or waiting for a message."
    )
