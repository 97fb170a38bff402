"""Jobs behind a link that is out for ever are refused in a sentence, whatever fails and is repaired meanwhile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hippo.jobs.engine.play import play
from hippo.jobs.job import Job
from hippo.jobs.joint.play import play_jointly
from hippo.jobs.joint.settings import SEPARATE
from hippo.jobs.ledger import Ledger
from hippo.jobs.placement.offers import OfferTable
from hippo.jobs.policies.heuristics import FIFO, SRTF, TWO_QUEUE
from hippo.jobs.policies.policy import QueuePolicy
from hippo.jobs.settings import Failures, ReplayRules
from hippo.jobs.site import DevicePool, JobSite, LinkHistory, site
from hippo.jobs.workload import JobWorkload

TWO = site([DevicePool("d0", "gpu", 2, 2), DevicePool("d1", "gpu", 2, 4)], 1e9)
FAILING = ReplayRules(failures=Failures(7200.0, 600.0, 600.0))
WORDS = "can never end: what it needs waits behind the link d0 -> d1, which carries nothing from 60 s on"


def out_from_60_s() -> JobSite:
    carries = np.stack([np.array(TWO.bandwidth_bytes_per_s)] * 2)
    carries[1, 0, 1] = 0.0
    return replace(TWO, history=LinkHistory(np.array([0.0, 60.0]), carries))


def jobs() -> JobWorkload:
    """The data of the first, 1,000 s of the link, are in d0, where it finds no room; the others need none."""
    return JobWorkload.of(
        [
            Job("far", 0.0, 600.0, 6, data_gb=1000.0, data_at="d0"),
            Job("near", 0.0, 900.0, 2),
            Job("next", 500.0, 300.0, 2),
        ]
    )


@pytest.mark.parametrize("rules", [ReplayRules(), FAILING, replace(FAILING, data="before")])
@pytest.mark.parametrize("policy", [FIFO, SRTF, TWO_QUEUE])
def test_a_gang_whose_data_can_not_come_is_refused_and_the_rest_ends(policy: QueuePolicy, rules: ReplayRules):
    judge(play(jobs(), out_from_60_s(), policy, rules))


@pytest.mark.parametrize("rules", [ReplayRules(), FAILING])
def test_it_is_so_beside_elastic_jobs(rules: ReplayRules):
    judge(play_jointly(jobs(), out_from_60_s(), SEPARATE, rules, offers=OfferTable.none()))


def judge(found: Ledger) -> None:
    assert dict(found.refused) == {0: WORDS}
    assert np.isnan(found.finish_s[0])
    assert np.isfinite(found.finish_s[1:]).all()


def test_who_waits_for_devices_that_it_holds_is_refused_too():
    behind = JobWorkload.of([*(jobs().job(row) for row in range(3)), Job("behind", 600.0, 60.0, 6)])
    found = play(behind, out_from_60_s(), FIFO, FAILING)
    assert dict(found.refused)[0] == WORDS
    assert "waits for ever for devices" in dict(found.refused).get(3, "waits for ever for devices")
    assert found.ran[1]


def test_a_link_that_comes_back_lets_them_end():
    there = out_from_60_s()
    assert there.history is not None
    carries = np.concatenate([there.history.bandwidth_bytes_per_s, there.history.bandwidth_bytes_per_s[:1]])
    back = replace(there, history=LinkHistory(np.array([0.0, 60.0, 90_000.0]), carries))
    found = play(jobs(), back, FIFO, FAILING)
    assert not found.refused
    assert found.finish_s[0] > 90_000.0
