"""What to do about a broken rule of ``plan/check.py``, by the rule's name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "empty": "describe at least one pipeline, and a stage in each",
        "degree": "write a whole number of at least 1",
        "layers": "let the stages of a pipeline follow on from one another and hold every layer once",
        "interleave": "use the schedule 'interleaved' and no more chunks than a stage has layers, or interleave 1",
        "domain": "use a domain of the cluster",
        "devices": "list tp x cp x dp devices of the stage's domain, each used once in the plan",
        "batch": "change num_micro_batches, micro_batch or dp, or ask for that global batch",
        "wave": "give the stage a dp that divides the wave",
        "order": "with schedule best write one text of letters F, B and W per stage; with any other leave it out",
        "warm-up": "with schedule cross-domain write one number per stage, never rising, at most num_micro_batches",
        "tensor parallel": "use a tp that divides heads and widths",
        "context parallel": "use a degree that divides the sequence",
        "sequence parallel": "use degrees that divide the sequence, or switch sequence_parallel off",
        "expert parallel": "use a degree that divides the experts and the ranks of every stage",
        "precision": "use a precision that the GPU has",
        "local SGD": "allow it, or write sync: {method: allreduce}",
        "sync": "write every: 1, or the method local_sgd",
        "uniform cuts": "cut into stages of equally many blocks, or do not ask for uniform cuts",
        "profile": "use what the profile measures, or measure more",
        "relay": "relay between two domains through a third that has links from the one and to the other",
        "compression": "name two domains of the cluster",
        "links": "add the link to the cluster, relay the pair, or put the stages elsewhere",
        "bandwidth floor": "cut across faster links, or lower the floor",
        "sync links": "add links or relays until a ring joins these domains, or put the stages elsewhere",
        "runtime": "keep to what the runtime can express, or ask for --runtime any",
    }
)
"""Remedies as imperative sentences without a full stop."""
