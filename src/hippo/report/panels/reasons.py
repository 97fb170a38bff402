"""Reasons set out: grouped by kind under a plain label, and the shares of the step as a bar."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hippo.decide.reasons import Binding, Reason, Rejected, RewardParts
from hippo.decide.wording import capital

LABELS = {
    "binding_constraint": "What binds",
    "bottleneck": "Bottleneck",
    "link_threshold": "Links against need",
    "capacity": "What links carry",
    "experts_inside": "Experts and links",
    "runner_up": "Runner-up",
    "switch": "What would change it",
    "no_switch": "What would change it",
    "degree": "Degrees",
    "better": "Something better",
    "sensitivity": "If a link moves",
    "reward": "Against the baseline",
    "idle_domain": "Idle domains",
    "memory": "Memory",
    "missing_memory": "What is missing",
    "unusable_profile": "What is missing",
    "nothing_found": "What is missing",
    "nearest_change": "What would fit",
    "rejected": "Turned down",
    "dropped": "Dropped",
    "gap": "How certain",
    "local_sgd": "Local SGD",
    "left_out": "Left out",
    "violation": "Broken constraints",
    "note": "Remarks",
}


@dataclass(frozen=True)
class StepShare:
    """A part of the step; ``colour`` is a CSS variable of the report."""

    name: str
    share: float
    colour: str
    hatched: bool = False


def plainly(reason: Reason) -> str:
    """The sentence of a reason for a page: without the letters of the reward and the names of bounds."""
    if isinstance(reason, RewardParts):
        return re.sub(r" \(R_\w+\)|: R = .*", "", reason.sentence().rstrip(".")) + "."
    if isinstance(reason, Rejected):
        causes = ", ".join(f"{cause.removesuffix(' (bound)')}: {times:,}" for cause, times in reason.counts)
        return f"Plans left while searching, by cause; {causes}."
    return reason.sentence()


def reason_groups(
    reasons: Sequence[Reason], said: Callable[[Reason], str] = Reason.sentence
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(label, sentences) in the order the kinds first appear."""
    groups: dict[str, list[str]] = {}
    for reason in reasons:
        label = LABELS.get(reason.kind, reason.kind.replace("_", " ").capitalize())
        groups.setdefault(label, []).append(_said_under(label, said(reason)))
    return tuple((label, tuple(sentences)) for label, sentences in groups.items())


def _said_under(label: str, sentence: str) -> str:
    """The sentence without its first words where they only repeat the label above it."""
    head = f"{label}: "
    return capital(sentence.removeprefix(head)) if sentence.startswith(head) else sentence


def waterfall(reasons: Sequence[Reason]) -> tuple[StepShare, ...]:
    """Where the step goes, from the binding constraint's shares; empty when no reason states them."""
    binding = next((reason for reason in reasons if isinstance(reason, Binding)), None)
    if binding is None:
        return ()
    parts = (
        StepShare("Computing", binding.compute_share, "--k0"),
        StepShare("Fill, drain, imbalance", binding.bubble_share, "--idle", hatched=True),
        StepShare("Waiting for bandwidth", binding.bandwidth_share, "--k1"),
        StepShare("Waiting for latency", binding.latency_share, "--d6"),
        StepShare("Agreeing and optimizer", binding.synchronisation_share, "--k3"),
    )
    return tuple(part for part in parts if part.share > 0.0005)
