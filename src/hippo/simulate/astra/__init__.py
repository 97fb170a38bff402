"""ASTRA-sim as a judge: a program written as Chakra traces, run by the user's own binary, read back op by op.

``chakra`` bytes of a trace < ``workload`` nodes of every rank < ``configuration`` files < ``binary`` a run < ``trace``
what it printed < ``play`` the engine < ``compare`` node by node with ``fast``. ``network``: its own, a second opinion.
"""
