"""What hindsight says of every option, not only of the one that was taken: learning from all answers at once.

The regret of an option is what the best of the options would give less what this one gives, both followed by perfect
hindsight, in epochs of usual work under the preferences of the run. Only training sees it.

Letters: W runs, M options.
"""

from __future__ import annotations

import numpy as np

from hippo.compiling import kernel
from hippo.network.env.describe import CANCEL, KEEP, STOP, SWITCH
from hippo.network.env.reward import reward_of
from hippo.network.env.tables import course_in, scene_in, truth_in
from hippo.network.moving import CONFIGURATION, PHASE, STILL, STOPPED, STREAMING, TARGET, advance, begin_move


@kernel
def fill_regrets(bank, runs, found):  # type: ignore[no-untyped-def]
    """Regret of each option of the decision that is due in each run, (W, M); 0 where an option is masked."""
    for run in range(len(found)):
        scene, truth = scene_in(bank, runs.world[run]), truth_in(bank, runs.world[run])
        best = -np.inf
        for option in range(found.shape[1]):
            if runs.mask[run, option]:
                found[run, option] = _gives(runs, run, scene, truth, option)
                best = max(best, found[run, option])
        for option in range(found.shape[1]):
            found[run, option] = best - found[run, option] if runs.mask[run, option] else 0.0


@kernel
def _gives(runs, run, scene, truth, option):  # type: ignore[no-untyped-def]
    """What an option gives until it is carried out (at least this epoch), and the most after it."""
    course, weights = course_in(scene, truth), truth.weights[runs.preference[run]]
    state, remaining = runs.state[run].copy(), runs.remaining[run, : len(scene.base) + 1].copy()
    how, target = runs.how[run, option], runs.target[run, option]
    if how == CANCEL:
        state[TARGET], state[PHASE] = -1, STILL
    elif how == SWITCH:
        state[CONFIGURATION] = target
    elif how != KEEP:
        begin_move(course, state, remaining, target, STOPPED if how == STOP else STREAMING)
    return until_done(runs, run, scene, truth, course, weights, state, remaining)


@kernel
def until_done(runs, run, scene, truth, course, weights, state, remaining):  # type: ignore[no-untyped-def]
    """What a run gives from now on until no move is under way (at least in this epoch), and the most after it;
    ``state`` and ``remaining`` are used up."""
    gave, gained = np.zeros(5), 0.0
    for epoch in range(runs.epoch[run], len(truth.tokens)):
        advance(course, epoch, state, remaining, gave)
        gained += reward_of(scene.scalars, weights, gave)
        if state[PHASE] == STILL:
            return gained + truth.value[runs.preference[run], epoch + 1, state[CONFIGURATION]]
    return gained
