"""Colours of domains, the same in every picture of one report; the style sheet says what they are."""

from __future__ import annotations

from hippo.report.story import Story

DOMAIN_COLOURS = 9
"""The style sheet has ``--d0`` to ``--d8``."""


def domain_colours(story: Story) -> dict[str, str]:
    """CSS variable of each domain: in the order the plan visits them, so that neighbours never share one."""
    return {name: f"--d{index % DOMAIN_COLOURS}" for index, name in enumerate(story.domain_order)}
