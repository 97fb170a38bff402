"""The one-file report: opens offline, names nothing outside itself, and escapes everything a user wrote.

Templates hold all markup, panels all figures; this file joins them.
"""

from __future__ import annotations

from collections.abc import Callable

from hippo.decide.wording import gbps, number, percent, seconds
from hippo.report import leads
from hippo.report.frame import frame, inline_json, template
from hippo.report.panels import front as fronts
from hippo.report.panels import network as networks
from hippo.report.panels.cuts import strips
from hippo.report.panels.memory import PARTS, memory_chart
from hippo.report.panels.network import traffic
from hippo.report.panels.planners import alternatives, entries
from hippo.report.panels.reasons import plainly, reason_groups, waterfall
from hippo.report.panels.timeline import KINDS, pack, rank_shares
from hippo.report.story import PlanStory
from hippo.report.text import (
    arrows,
    assumed_text,
    cpu_seconds,
    found_by,
    gap_sentence,
    gap_text,
    headline_figures,
    micro_batches,
    not_searched,
    pipeline_lines,
    question_line,
    settings,
    unbroken,
    usd,
)

LONGEST_HEADER = 52
"""Letters up to which the heat map writes the names of domains across its columns; longer, they stand upright."""

MOST_REASONS = 4
"""Reasons of one kind shown at once; the rest unfolds."""


def report(story: PlanStory) -> str:
    """The HTML report of one plan: a whole document, a few hundred kilobytes at most for large schedules."""
    page = template("report.html.j2", **_filters())
    return page.render(**frame("timeline.js", "step.js"), **_headline(story), **_panels(story))


# ------------------------------------------------------------------------------------------------------- templates
def _filters() -> dict[str, Callable[..., object]]:
    return {
        "seconds": seconds,
        "percent": percent,
        "number": number,
        "gbps": gbps,
        "usd": usd,
        "gap": gap_text,
        "cpu_seconds": cpu_seconds,
        "micro_batches": micro_batches,
        "unbroken": unbroken,
        "capitalised": lambda text: text[:1].upper() + text[1:],
        "arrows": arrows,
    }


# ---------------------------------------------------------------------------------------------------------- content
def _headline(story: PlanStory) -> dict[str, object]:
    return {
        "story": story,
        "domain_colour": story.domain_colours,
        "question": question_line(story.problem),
        "figures": headline_figures(story.problem, story.plan, story.score),
        "assumed": assumed_text(story.problem, domains=len(story.plan.domains)),
        "answer": leads.answer(story),
        "verdict": _verdict(story),
        "found": found_by(story.planner, story.rows, story.planning_s, story.reasons_s) if story.planner else "",
        "lines": pipeline_lines(story.plan),
        "layers_lead": leads.layers(story),
        "settings": settings(story.plan),
        "inputs": leads.inputs(story.problem),
        "reasons": reason_groups(story.reasons, plainly),
        "waterfall": waterfall(story.reasons),
        "most_reasons": MOST_REASONS,
    }


def _verdict(story: PlanStory) -> str:
    """How near the best the plan is, and whether the search came to its end."""
    proven = gap_sentence(story.problem, story.gap, story.lower_bound_s, story.prover, "the planner ")
    return " ".join(filter(None, (proven, story.cut_short, not_searched(story.problem))))


def _panels(story: PlanStory) -> dict[str, object]:
    shares, flows, packed = rank_shares(story), traffic(story), pack(story)
    memory, rows, others = memory_chart(story), entries(story), alternatives(story)
    return {
        "timeline_lead": leads.timeline(shares),
        "timeline_json": inline_json(packed),
        "block": packed["block"],
        "ranks": shares,
        "kinds": [
            {"index": index, "name": name, "share": max(rank.shares[index] for rank in shares)}
            for index, name in enumerate(KINDS)
        ],
        "strips": strips(story),
        "ahead": any(pipeline.run_ahead for pipeline in story.plan.pipelines),
        "cuts_lead": leads.cuts(story),
        "traffic": flows,
        "traffic_lead": leads.traffic(flows, story.score),
        "map": networks.network(story, flows),
        "turned": max(map(len, flows.domains)) * len(flows.domains) > LONGEST_HEADER,
        "dense": len(flows.domains) > 5,
        "memory": memory,
        "memory_lead": leads.memory(memory),
        "parts": PARTS,
        "entries": rows,
        "alternatives": others,
        "planners_lead": leads.planners(rows),
        "front": fronts.front_chart(story),
        "front_lead": leads.front(story),
        "sections": leads.sections(story, compared=len(rows) > 1 or bool(others), networked=bool(flows.flows)),
    }
