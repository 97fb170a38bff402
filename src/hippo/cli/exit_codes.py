"""What a command's exit code says."""

from __future__ import annotations

DONE = 0
FAULT = 1  # of hippo's own
WRONG_INPUT = 2  # the user's: one message with file, key, value, remedy
INFEASIBLE = 3  # an answer, with reasons
INTERRUPTED = 130
