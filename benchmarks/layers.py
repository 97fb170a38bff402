"""Layer times and memory: measured by `hippo profile` on the GPU at hand, against what the formulas say (minutes).

    hippo bench layers
    python benchmarks/layers.py --cpu       a small model on the CPU, which the formulas were never fitted to

One rank's shard of each layer, without collectives on either side: the formulas are asked for an endlessly quick node.
ProfiledRow: medians over the repeats. Predicted: eager PyTorch with FlashAttention-2, as the executor runs, and in
brackets the fused kernels of Megatron-LM, which planning assumes. Where there is no GPU nothing is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from hippo.cost.cost_model import CostModel
from hippo.cost.memory import activation_bytes
from hippo.cost.stage import Layout
from hippo.measure.profile.device import device_at_hand
from hippo.measure.profile.measure import profiled
from hippo.measure.profile.rows import ProfiledRow, ProfileRequest
from hippo.problem.catalogue.models import MODELS
from hippo.problem.cluster import Cluster, Domain, Gpu
from hippo.problem.model import Model, gpt_model
from hippo.problem.objective import Objective
from hippo.problem.problem import Problem
from hippo.problem.workload import Software, Workload

SHAPES = (("gpt2", 1024, (1,), (4, 16)), ("llama-3-8b", 4096, (1, 2, 8), (1, 2)), ("llama-3-70b", 4096, (4, 8), (1, 2)))
"""Model, sequence, tensor-parallel widths, micro-batches."""
ON_A_CPU = gpt_model("small", layers=4, hidden=512, heads=8, vocab=4096, seq=256, gated=True)
EAGER = Software(attention="flash2", fused_elementwise=False)
ENDLESS_BYTES_PER_S = 1e18
BUDGET_S = 1.0


def main() -> None:
    """Prints the table."""
    on_a_cpu = device_at_hand().type == "cpu"
    if on_a_cpu and "--cpu" not in sys.argv[1:]:
        print("No GPU at hand: nothing was measured.")
        return
    asked = (
        [ProfileRequest(ON_A_CPU, (1, 2), (1, 4), 256, BUDGET_S)]
        if on_a_cpu
        else [ProfileRequest(MODELS[name], widths, sizes, seq, BUDGET_S) for name, seq, widths, sizes in SHAPES]
    )
    errors: list[float] = []
    for each in asked:
        answer = profiled(each, lambda phase, share: None)
        print(f"\n{each.model.name}, {each.seq} tokens, {answer.profile.precision}, {answer.gpu.name}")
        errors += table(each, answer.gpu, answer.profile.precision, answer.rows)
    print(f"\nForward and backward of blocks, predicted for eager kernels: median error {median(map(abs, errors)):.1%}")


def table(asked: ProfileRequest, gpu: Gpu, precision: str, rows: Sequence[ProfiledRow]) -> list[float]:
    """Prints a line for each row; errors of the blocks' whole time."""
    costs = {
        name: CostModel(problem(asked, gpu, precision, kind)) for name, kind in (("eager", EAGER), ("", Software()))
    }
    head = f"{'layer':10s} {'tp':>3s} {'mb':>3s}"
    head += "".join(f" {name + ' ms: measured, predicted':>36s}" for name in ("forward", "input gradient", "weights"))
    print(head + f" {'kept MB: measured, formula':>28s} {'peak MB':>9s}")
    errors = []
    for each in rows:
        layout = Layout(each.row.tp, 1, each.row.micro_batch, precision=precision)
        index = next(i for i, layer in enumerate(asked.model.layers) if layer.kind.value == each.row.layer_kind)
        eager, fused = (costs[name].layer_seconds("here", layout)[index] for name in ("eager", ""))
        times = (each.times.forward, each.times.backward, each.times.weight)
        cells = (
            f"{one.median_s * 1e3:9.3f} {a * 1e3:9.3f} {a / one.median_s - 1:+5.0%} ({b * 1e3:.3f})"
            for one, a, b in zip(times, eager, fused, strict=True)
        )
        kept = activation_bytes(asked.model.layers[index], layout, costs["eager"].problem.workload)
        line = f"{each.row.layer_kind:10s} {each.row.tp:3d} {each.row.micro_batch:3d}"
        line += "".join(f" {cell:>36s}" for cell in cells)
        print(
            line + f" {each.times.activation_bytes / 1e6:13.1f} {kept / 1e6:14.1f} {each.times.peak_bytes / 1e6:9.1f}"
        )
        if each.row.layer_kind == "block":
            errors.append(float(sum(eager)) / sum(one.median_s for one in times) - 1)
    return errors


def problem(asked: ProfileRequest, gpu: Gpu, precision: str, software: Software) -> Problem:
    """One node of this GPU whose inside costs nothing; no profile, so that the formulas answer."""
    quick = replace(gpu, nvlink_bytes_per_s=ENDLESS_BYTES_PER_S)
    here = Domain("here", 1, 8, ENDLESS_BYTES_PER_S, ENDLESS_BYTES_PER_S, 0.0)
    model: Model = asked.model
    workload = Workload(global_batch=64, seq=asked.seq, precision=precision, software=software)
    return Problem(model, Cluster("here", quick, (here,), ()), workload, Objective())


if __name__ == "__main__":
    main()
