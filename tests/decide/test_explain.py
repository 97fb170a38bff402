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
from hippo.score.score import Score

GOLDEN = Path(__file__).with_name("explain.txt")
ROOM = MemoryHeadroom("stage 1 in a", (70e9, 60e9), 76e9)


def score(step_time_s: float, **figures: float) -> Score:
    known = dict.fromkeys(
        ("utilization", "utilization_all", "cross_domain_gb_per_step", "egress_usd_per_step", "usd_per_step"), 0.0
    )
    known |= dict.fromkeys(("tokens_per_s", "mfu", "peak_memory_gb", "reward"), 0.0)
    return Score(**(known | {"step_time_s": step_time_s} | figures))


def told(title: str, game, context: Context, its: Score) -> str:
    """A heading and the sentences of all reasons."""
    return "\n".join([f"# {title}", *(f"- {reason.sentence()}" for reason in reasons_of(game, its, ROOM, context))])


def explanations(worlds) -> str:
    """The golden text: a step of 62 s behind a slow link, of 27 s behind a slow stage, of 24 s in one domain."""
    link = worlds.across(send_s=10.0)
    proven = Context(
        "exact",
        gap=0.05,
        lower_bound_s=58.9,
        notes=("The time limit stopped it.",),
        rejected={"out of memory": 1200, "cuts not uniform": 7},
        baseline=Baseline("even", link.plan, score(124.0, egress_usd_per_step=2.0)),
    )
    its = score(62.0, reward=0.5, r_eff=0.5, r_util=0.19, r_cost=0.5)
    stage = worlds.across(send_s=0.01, forward=(1.0, 2.0))
    local = replace(stage.plan, sync=Sync("local_sgd", 500))
    allowed = Proposal("diloco", Status.FEASIBLE, local, score(13.5), notes=("Published penalty: +0.2 %.",))
    return "\n\n".join(
        [
            told("a link that takes 10 s a message: 62 s, of which 50 are messages", link, proven, its),
            told(
                "a stage of twice the work: 27 s, of which it computes 24",
                stage,
                Context("exact", 0.0, local_sgd=allowed),
                score(27.0),
            ),
            told("one domain alone: 24 s of computing", worlds.alone(), Context("single_domain"), score(24.0)),
        ]
    )


def test_explanations_read_as_written(worlds):
    assert explanations(worlds).splitlines() == GOLDEN.read_text().splitlines()


if __name__ == "__main__":
    from conftest import worlds as fixture

    GOLDEN.write_text(explanations(fixture.__wrapped__()) + "\n")
