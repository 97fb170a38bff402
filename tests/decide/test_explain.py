"""A whole explanation as one reads it, in worlds solved by hand: tests/decide/explain.txt.

``python tests/decide/test_explain.py`` (with the tests' folder of worlds) writes the text anew.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hippo.decide.decision import Baseline
from hippo.decide.explain import Context, reasons_of
from hippo.decide.reasons import MemoryHeadroom
from hippo.plan.plan import Sync
from hippo.planners.base import Proposal, Status

GOLDEN = Path(__file__).with_name("explain.txt")
ROOM = MemoryHeadroom("stage 1 in a", (70e9, 60e9), 76e9)


def told(title: str, game, context: Context, **figures: float) -> str:
    """A heading and the sentences of all reasons; ``figures`` of the score beside its step time."""
    game = replace(game, score=replace(game.score, **figures))
    return "\n".join([f"# {title}", *(f"- {reason.sentence()}" for reason in reasons_of(game, ROOM, context))])


def explanations(worlds) -> str:
    """The golden text: a step of 62 s behind a slow link, of 27 s behind a slow stage, of 24 s in one domain."""
    link = worlds.across(send_s=10.0)
    proven = Context(
        "exact",
        gap=0.05,
        lower_bound_s=58.9,
        notes=("The time limit stopped it.",),
        rejected={"out of memory": 1200, "cuts not uniform": 7},
        baseline=Baseline("even", replace(link, score=replace(link.score, step_time_s=124.0, egress_usd_per_step=2.0))),
    )
    reward = {"reward": 0.5, "r_eff": 0.5, "r_util": 0.19, "r_cost": 0.5}
    stage = worlds.across(send_s=0.01, forward=(1.0, 2.0))
    averaged = replace(stage.plan, sync=Sync("local_sgd", 500))
    local = replace(stage, plan=averaged, score=replace(stage.score, step_time_s=13.5))
    allowed = Proposal("diloco", Status.FEASIBLE, local, notes=("Published penalty: +0.2 %.",))
    return "\n\n".join(
        [
            told("a link that takes 10 s a message: 62 s, of which 50 are messages", link, proven, **reward),
            told(
                "a stage of twice the work: 27 s, of which it computes 24",
                stage,
                Context("exact", 0.0, local_sgd=allowed, local_sgd_searched=True),
            ),
            told("one domain alone: 24 s of computing", worlds.alone(), Context("single_domain")),
        ]
    )


def test_explanations_read_as_written(worlds):
    assert explanations(worlds).splitlines() == GOLDEN.read_text().splitlines()


if __name__ == "__main__":
    from conftest import worlds as fixture

    GOLDEN.write_text(explanations(fixture.__wrapped__()) + "\n")
