"""A decision in a notebook cell: figures, plan, map, where the step goes, reasons, comparison. No script."""

from __future__ import annotations

from hippo.decide.decision import Decision
from hippo.decide.wording import number, percent, seconds
from hippo.report.frame import template
from hippo.report.panels.network import network, traffic
from hippo.report.panels.reasons import reason_groups, waterfall
from hippo.report.story import tell
from hippo.report.text import (
    arrows,
    gap_sentence,
    gap_text,
    headline_figures,
    pipeline_lines,
    question_line,
    ranked,
    usd,
    versus,
)

MOST_KINDS = 3
"""Kinds of reasons shown at once, by their first sentence; the rest unfolds."""

COLOURS = {"--k0": "#2360c0", "--idle": "#b9bcc2", "--k1": "#e8890c", "--d6": "#b0343c", "--k3": "#ad5f9e"}
"""The report's colours of the step's parts, fixed: a notebook may be light or dark."""

MAP = {
    **{"--accent": "#2360c0", "--muted": "#8a8f98", "--surface": "transparent", "--ink": "currentColor"},
    **{"--d0": "#4a6cc0", "--d1": "#d1703c", "--d2": "#2f8f83", "--d3": "#b3559a", "--d4": "#7a8b2a"},
    **{"--d5": "#5aa2d6", "--d6": "#c04a52", "--d7": "#8a72c8", "--d8": "#9a7a44"},
}
"""What the report's map takes from its style sheet, legible on light and dark."""


def decision_html(decision: Decision) -> str:
    """A fragment of HTML (no script, no outside reference), a few kilobytes."""
    score, plan, rows = decision.score, decision.plan, ranked(decision.rows)
    reasons = reason_groups(decision.reasons)
    found = plan is not None and score is not None
    story = tell(decision) if found and len(decision.problem.cluster.domains) > 1 else None
    quickest = min((row.score.step_time_s for row in rows if row.score), default=0.0)
    page = template(
        "notebook.html.j2",
        arrows=arrows,
        seconds=seconds,
        percent=percent,
        number=number,
        usd=usd,
        gap=gap_text,
        versus=versus,
    )
    return page.render(
        decision=decision,
        question=question_line(decision.problem),
        figures=headline_figures(decision.problem, plan, score)[:6] if plan and score else (),
        verdict=gap_sentence(decision.problem, decision.gap, decision.lower_bound_s, decision.prover)
        if found
        else "No plan fits.",
        lines=pipeline_lines(plan) if plan else (),
        waterfall=waterfall(decision.reasons),
        reasons=reasons,
        hidden=any(len(sentences) > 1 for _, sentences in reasons) or len(reasons) > MOST_KINDS,
        most_kinds=MOST_KINDS,
        rows=rows if len(rows) > 1 else (),
        quickest=quickest,
        colours=COLOURS,
        map=network(story, traffic(story)) if story else None,
        map_style=";".join(f"{name}:{value}" for name, value in MAP.items()),
        domain_colour={} if story is None else story.domain_colours,
    )
