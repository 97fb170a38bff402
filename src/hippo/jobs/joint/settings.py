"""Schedulers with the settings that were found for them on training worlds: ``settings.json``, which
``python -m benchmarks.rivals --write`` writes. As many plays for each; the test worlds are never used for this."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from hippo.jobs.joint import rules
from hippo.jobs.joint.receding_horizon import JointHorizon

Rule = TypeVar("Rule", rules.Ranked, rules.GoodputProgram, JointHorizon)


@cache
def searched() -> Mapping[str, Any]:
    """The document: ``budget``, and of each rule ``setting`` and what it costs with it, over ``separate`` as it was."""
    text = files("hippo.jobs.joint").joinpath("settings.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def tuned(rule: Rule) -> Rule:
    """A rule with its best setting; as it is where none was searched."""
    return replace(rule, **searched()["rules"].get(rule.name, {}).get("setting", {}))


SEPARATE, MAST, SAILOR = tuned(rules.SEPARATE), tuned(rules.MAST), tuned(rules.SAILOR)
CROSSPIPE, CRUX, HYPERION = tuned(rules.CROSSPIPE), tuned(rules.CRUX), tuned(rules.HYPERION)
SLA_MORL, SHORTEST, SRPT = tuned(rules.SLA_MORL), tuned(rules.SHORTEST), tuned(rules.SRPT)
GOODPUT, RECEDING_HORIZON = tuned(rules.GOODPUT), tuned(JointHorizon(base=SRPT))
