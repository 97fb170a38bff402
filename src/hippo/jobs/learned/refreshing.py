"""New keys for all jobs at once: what others have done since tells of a job, too."""

from __future__ import annotations

from hippo.compiling import kernel
from hippo.jobs.engine.columns import KEY, LEARNED, STATUS, WAITING
from hippo.jobs.engine.waiting import rekey
from hippo.jobs.learned import filling
from hippo.jobs.learned.policy import key, look_again


@kernel(lean=True)
def refresh(w, now):  # type: ignore[no-untyped-def]
    """Asks anew for the keys of all jobs that wait or run; not if another policy has taken over meanwhile."""
    if w.policy != LEARNED:
        return
    known, for_deadlines = w.learned, w.numbers[1] > 0.0
    if not for_deadlines:
        for at in range(int(known.wanting[0])):
            if look_again(w, known, known.active[at], now):
                filling.stand(w, known, known.active[at])
        filling.settle(w, known)
    for at in range(int(known.wanting[0])):
        job = known.active[at]
        before = w.job[job, KEY]
        w.job[job, KEY] = key(w, job, now) if for_deadlines else filling.key(w, known, job)
        if w.job[job, KEY] != before and w.mark[job, STATUS] == WAITING:
            rekey(w, job, w.job[job, KEY])
