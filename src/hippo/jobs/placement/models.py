"""Which model a job trains when it does not say so: its number of devices picks one from the catalogue.

Trace rows name no model. The table below follows two rules of thumb.

* *Memory.* Training in mixed precision with Adam keeps about 16 bytes per parameter (weights, master weights, two
  moments, gradient). Up to 64 devices the model has about one billion parameters per device, 16 GB of states each, so
  half of a 32 GB card and a fifth of an 80 GB card: what people do who take no more devices than they need. Above,
  devices are added for speed: 175 billion on 256 (11 GB each), 405 billion on 512 (13 GB).
* *Batch.* Tokens per step as in GPT-3 (Brown et al. 2020, table 2.1: 0.5 to 3.2 million, growing with the model) and
  Llama 2 and 3 (4 million tokens). All batches are 3 times a power of two, so
  that two, three or four equal parts share them.

A model that does not fit into so many devices of a type is replaced by the next smaller one of the table
(``smaller``). A job that names its model trains that or nothing, with the batch of the table's model of its size or
above.
"""

from __future__ import annotations

from dataclasses import dataclass

from hippo.problem.catalogue.models import MODELS
from hippo.problem.cluster import Cluster
from hippo.problem.load import load_model, load_problem
from hippo.problem.problem import Problem


@dataclass(frozen=True)
class Training:
    """What a job of at least ``devices`` devices trains; 0 devices: only where nothing larger fits."""

    devices: int
    model: str
    global_batch: int  # sequences per step
    seq: int  # tokens per sequence


TABLE = (
    Training(0, "gpt3-125m", 192, 2048),
    Training(0, "gpt3-350m", 192, 2048),
    Training(1, "llama-3.2-1b", 192, 2048),
    Training(2, "qwen2.5-1.5b", 192, 2048),
    Training(4, "llama-3.2-3b", 192, 2048),
    Training(8, "llama-3-8b", 384, 4096),
    Training(16, "qwen2.5-14b", 384, 4096),
    Training(32, "qwen2.5-32b", 768, 4096),
    Training(64, "llama-3-70b", 768, 4096),
    Training(256, "gpt3-175b", 1536, 2048),
    Training(512, "llama-3-405b", 768, 4096),
)
"""Ordered by the size of the model. Precision: bf16 where the GPU has it (``load_problem``)."""


def training(devices: int, model: str = "") -> Training:
    """What a job of this many devices (>= 1) trains; ``model``: a catalogue name or file that it gives itself.

    ``InputError`` for a model that does not exist.
    """
    if not model:
        return next(row for row in reversed(TABLE) if row.devices <= devices)
    named = load_model(model)
    larger = (row for row in TABLE if MODELS[row.model].parameters >= named.parameters)
    row = next(larger, TABLE[-1])
    return Training(devices, model, row.global_batch, min(row.seq, named.max_seq))


def smaller(wanted: Training) -> Training | None:
    """The row of the table before this one; None before the first."""
    place = TABLE.index(wanted)
    return TABLE[place - 1] if place else None


def problem(wanted: Training, cluster: Cluster) -> Problem:
    """The planner's question: the quickest step of this training on these devices."""
    return load_problem(model=wanted.model, cluster=cluster, global_batch=wanted.global_batch, seq=wanted.seq)
