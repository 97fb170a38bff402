"""``hippo profile``: a model's layers timed on the device at hand, as the profile that ``--profile`` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hippo.cli.options import Json, ModelName, Seq, takes
from hippo.cli.output import check_file, print_document, print_view, write_files
from hippo.cli.progress import Watch
from hippo.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hippo.measure.profile.rows import ProfiledDevice, ProfiledRow, ProfileRequest
    from hippo.problem.cluster import Cluster, Gpu

PROFILERS = {"torch": "hippo.measure.profile.measure:profiled"}
LONGEST_BUDGET_S = 3600.0
MOST_TP, MOST_MICRO_BATCH, MOST_SHAPES = 1024, 1_000_000, 1000


@dataclass(frozen=True)
class Choice:
    """What is timed, for how long, and where it goes."""

    model: ModelName
    tp: Annotated[str, typer.Option(metavar="1,2,..", help="Tensor-parallel widths; one rank's shard is timed.")] = "1"
    micro_batch: Annotated[str, typer.Option(metavar="1,2,..", help="Sequences per micro-batch.")] = "1"
    seq: Seq = None
    precision: Annotated[
        str | None, typer.Option(metavar="fp32|bf16|fp16", help="Number format.", show_default="GPU bf16, CPU fp32")
    ] = None
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the device in the rows.", show_default="its own")
    ] = None
    seconds: Annotated[float, typer.Option(metavar="S", help="Seconds for each layer at each width and size.")] = 2.0
    threads: Annotated[int, typer.Option(metavar="N", min=1, max=1024, help="CPU threads of one device.")] = 1
    cluster: Annotated[
        str | None,
        typer.Option(metavar="CLUSTER.yaml|NAME", help="Also write this cluster with the device as its GPU."),
    ] = None
    out: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the profile there.")] = None
    json: Json = False


@takes(Choice)
def profile(choice: Choice) -> None:
    """Seconds and bytes of a model's layers, measured with torch.

    Forward, input gradient and weight gradient, on the GPU where there is one, else on the CPU; collectives of tensor
    parallelism are not in the seconds. For a device that the catalogue does not hold, a cluster file that does is
    written beside --out.
    """
    from hippo.problem.profile import profile_to_document

    asked, cluster = _asked(choice), _cluster(choice)
    with Watch("profiling") as watch:
        answer = _profiled()(asked, watch)
    document = profile_to_document(answer.profile)
    files = _files(choice, document, answer.gpu, cluster)
    if choice.json:
        gpu, rows = _gpu_document(answer.gpu), [_detail(each) for each in answer.rows]
        print_document({"profile": document, "gpu": gpu, "rows": rows, "files": [str(path) for path in files]})
    else:
        print_view(_view(answer.rows))
        print(answer.profile.source)
    if choice.out is not None:
        write_files(choice.out.parent, {path.name: text for path, text in files.items()})


def _profiled() -> Callable[[ProfileRequest, Watch], ProfiledDevice]:
    """Who times; torch is loaded only now."""
    from hippo.registry import load

    try:
        found: Callable[[ProfileRequest, Watch], ProfiledDevice] = load(PROFILERS, "profiler", "torch")
    except ImportError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("torch", "run", source="hippo profile") from None
    return found


def _check(choice: Choice, shapes: int) -> None:
    if shapes > MOST_SHAPES:
        problem = f"{shapes} combinations of width and size"
        raise InputError(
            problem, source="--micro-batch", value=choice.micro_batch, remedy=f"ask for {MOST_SHAPES} at most"
        )
    if not 0 < choice.seconds <= LONGEST_BUDGET_S:
        remedy = f"give seconds, above 0 to {LONGEST_BUDGET_S:g}"
        raise InputError("is out of range", source="--seconds", value=choice.seconds, remedy=remedy)
    if choice.out is not None:
        check_file(choice.out)
    if choice.cluster is not None and choice.out is None:
        remedy = "give --out FILE.json; the cluster file is written beside it"
        raise InputError("there is no place to write it to", source="--cluster", value=choice.cluster, remedy=remedy)


def _numbers(option: str, text: str, most: int) -> tuple[int, ...]:
    """Whole numbers between commas, each once, in order."""
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = [0]
    if found[0] < 1 or found[-1] > most:
        remedy = f"give whole numbers from 1 to {most}, for instance 1,2,4"
        raise InputError("is no list of numbers", source=option, value=text, remedy=remedy)
    return tuple(found)


def _asked(choice: Choice) -> ProfileRequest:
    """The question, checked as far as it can be without the device."""
    from hippo.errors import UnknownNameError
    from hippo.measure.profile.rows import PRECISIONS, ProfileRequest
    from hippo.problem.load import DEFAULT_SEQ, MAX_SEQ, load_model

    widths = _numbers("--tp", choice.tp, MOST_TP)
    sizes = _numbers("--micro-batch", choice.micro_batch, MOST_MICRO_BATCH)
    _check(choice, len(widths) * len(sizes))
    model = load_model(choice.model)
    seq = min(DEFAULT_SEQ, model.max_seq) if choice.seq is None else choice.seq
    if not 1 <= seq <= MAX_SEQ:
        remedy = f"write a number from 1 to {MAX_SEQ}"
        raise InputError("must be a positive whole number", source="--seq", value=seq, remedy=remedy)
    if choice.precision is not None and choice.precision not in PRECISIONS:
        raise UnknownNameError("precision", choice.precision[:60], PRECISIONS, source="--precision")
    return ProfileRequest(model, widths, sizes, seq, choice.seconds, choice.precision, choice.gpu, choice.threads)


# ---------------------------------------------------------------------------------------------------------------- files
def _cluster(choice: Choice) -> Cluster | None:
    from hippo.problem.load import load_cluster

    return None if choice.cluster is None else load_cluster(choice.cluster)


def _files(choice: Choice, document: Mapping[str, object], gpu: Gpu, cluster: Cluster | None) -> dict[Path, str]:
    """The profile, and the cluster file where one is asked for or no other can name the device."""
    from hippo.files import json_text
    from hippo.measure.profile.rows import cluster_with
    from hippo.problem.gpus import GPUS

    if choice.out is None:
        return {}
    files = {choice.out: json_text(document)}
    if cluster is not None or gpu.name not in GPUS:
        files[choice.out.with_name(f"{choice.out.stem}.cluster.yaml")] = cluster_with(gpu, cluster)
    return files


def _gpu_document(gpu: Gpu) -> object:
    from hippo.problem.cluster import Cluster
    from hippo.problem.cluster_yaml import cluster_to_document

    return cluster_to_document(Cluster("", gpu, (), ()))["gpu"]


# ----------------------------------------------------------------------------------------------------------------- view
def _detail(each: ProfiledRow) -> dict[str, object]:
    """A row with the range over its repeats."""
    row, times = each.row, each.times
    seconds = {name: asdict(getattr(times, name)) for name in ("forward", "backward", "weight")}
    key: dict[str, object] = (
        {"layer_index": row.layer_index} if row.layer_kind is None else {"layer_kind": row.layer_kind}
    )
    bytes_ = {
        f"{name}_bytes": getattr(times, f"{name}_bytes") for name in ("parameter", "activation", "output", "peak")
    }
    return {**key, "tp": row.tp, "micro_batch": row.micro_batch, "repeats": times.repeats, **seconds, **bytes_}


def _view(found: Sequence[ProfiledRow]) -> RenderableType:
    """A line for each row: medians in ms, their range, MB."""
    from hippo.report.fitted import FittedTable, column

    def ms(name: str) -> list[str]:
        every = [getattr(each.times, name) for each in found]
        return [f"{one.median_s * 1e3:.4g} ({one.least_s * 1e3:.4g}-{one.most_s * 1e3:.4g})" for one in every]

    def mb(name: str) -> list[str]:
        return [f"{getattr(each.times, name) / 1e6:.4g}" for each in found]

    return FittedTable(
        (
            column("layer", (each.row.layer_kind or str(each.row.layer_index) for each in found), right=False),
            column("tp", (str(each.row.tp) for each in found)),
            column("micro-batch", (str(each.row.micro_batch) for each in found)),
            column("forward ms", ms("forward")),
            column("input gradient ms", ms("backward")),
            column("weight gradient ms", ms("weight")),
            column("weights MB", mb("parameter_bytes"), rank=3),
            column("kept MB", mb("activation_bytes"), rank=1),
            column("peak MB", mb("peak_bytes"), rank=2),
            column("repeats", (str(each.times.repeats) for each in found), rank=4),
        )
    )
