"""Steps per second of Gavel's job types: how long a job of so many steps runs.

``MSR``: for the seven-column files (traces/msr). Found by us from two published traces: the arrivals of a file, moved
by one constant, stand in Philly's list of the same virtual cluster, whose durations are known; steps / duration is then
the same for every job of a type, whatever its number of workers (699 jobs of ee9e8c.trace against philly.csv of
AdaptDL; five more files agree to 5 digits). docs/jobs.md tells how to repeat it.

``V100``: for the ten-column form, at 1, 2, 4 and 8 workers. Measured on V100 GPUs by Gavel's authors
(github.com/stanford-futuredata/gavel, scheduler/simulation_throughputs.json, MIT), rounded to three digits. Types with
one figure run on one worker only; a number of workers between two figures takes the lower one.
"""

from __future__ import annotations

from collections.abc import Mapping

MSR: Mapping[str, float] = {
    "A3C": 8.233,
    "CycleGAN": 4.9185,
    "LM (batch size 5)": 167.12,
    "LM (batch size 10)": 143.36,
    "LM (batch size 20)": 107.95,
    "LM (batch size 40)": 71.723,
    "LM (batch size 80)": 43.904,
    "Recommendation (batch size 512)": 0.33147,
    "Recommendation (batch size 1024)": 0.47997,
    "Recommendation (batch size 2048)": 0.56752,
    "Recommendation (batch size 4096)": 0.62439,
    "Recommendation (batch size 8192)": 0.60235,
    "ResNet-18 (batch size 16)": 77.317,
    "ResNet-18 (batch size 32)": 65.805,
    "ResNet-18 (batch size 64)": 48.884,
    "ResNet-18 (batch size 128)": 30.287,
    "ResNet-18 (batch size 256)": 16.987,
    "ResNet-50 (batch size 16)": 17.374,
    "ResNet-50 (batch size 32)": 9.9206,
    "ResNet-50 (batch size 64)": 5.4576,
    "ResNet-50 (batch size 128)": 2.846,
    "Transformer (batch size 16)": 12.846,
    "Transformer (batch size 32)": 12.475,
    "Transformer (batch size 64)": 9.568,
    "Transformer (batch size 128)": 5.7712,
    "Transformer (batch size 256)": 1.707,
}
"""Job type to steps per second, for any number of workers."""

WORKERS = (1, 2, 4, 8)

V100: Mapping[str, tuple[float, ...]] = {
    "A3C": (7.18,),
    "CycleGAN": (4.43,),
    "LM (batch size 5)": (109, 186, 127, 699),
    "LM (batch size 10)": (81.7, 163, 121, 615),
    "LM (batch size 20)": (64.7, 132, 111, 497),
    "LM (batch size 40)": (45.2, 91.6, 96.0, 359),
    "LM (batch size 80)": (28.2, 58.1, 74.8, 231),
    "Recommendation (batch size 512)": (23.3,),
    "Recommendation (batch size 1024)": (13.3,),
    "Recommendation (batch size 2048)": (7.47,),
    "Recommendation (batch size 4096)": (3.91,),
    "Recommendation (batch size 8192)": (2.84,),
    "ResNet-18 (batch size 16)": (32.4, 100, 124, 383),
    "ResNet-18 (batch size 32)": (29.9, 94.2, 115, 340),
    "ResNet-18 (batch size 64)": (24.1, 74.1, 95.6, 256),
    "ResNet-18 (batch size 128)": (18.0, 24.0, 70.0, 162),
    "ResNet-18 (batch size 256)": (10.3, 15.9, 27.8, 81.5),
    "ResNet-50 (batch size 16)": (11.4, 13.9, 23.2, 27.8),
    "ResNet-50 (batch size 32)": (7.79, 10.8, 13.8, 24.1),
    "ResNet-50 (batch size 64)": (4.40, 7.92, 9.45, 17.3),
    "ResNet-50 (batch size 128)": (2.50, 4.22, 7.03, 10.3),
    "Transformer (batch size 16)": (11.1, 14.2, 20.1, 71.7),
    "Transformer (batch size 32)": (10.6, 13.3, 22.8, 64.0),
    "Transformer (batch size 64)": (8.62, 15.9, 19.7, 49.7),
    "Transformer (batch size 128)": (5.45, 10.1, 14.2, 30.9),
    "Transformer (batch size 256)": (1.60, 2.89, 4.76, 9.72),
}
"""Job type to steps per second at ``WORKERS`` workers."""


def v100_steps_per_s(job_type: str, workers: float) -> float:
    """Steps per second of the ten-column form; ``KeyError`` for a type that was not measured."""
    measured = V100[job_type]
    place = sum(1 for number in WORKERS if number <= workers) - 1
    return measured[min(max(place, 0), len(measured) - 1)]
