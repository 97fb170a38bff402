"""Published training runs, one layout each, as the rows of ``training_open.json`` tell them: parsed, not yet predicted.

A row that lacks what no general rule can fill keeps its ``refusal`` and is never predicted. What a source's network
achieves is an input of its rows, said once a source (``networks.json``) and measured apart from the steps.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from hippo.errors import InputError
from hippo.files import read_text
from hippo.problem.catalogue.models import ALIASES, MODELS, model
from hippo.problem.cluster import Cluster, Gpu
from hippo.problem.cluster_yaml import MAX_GPUS
from hippo.problem.config_json import MAX_BLOCKS, MAX_HEADS, MAX_HIDDEN, MAX_VOCAB, MAX_WIDTH
from hippo.problem.document import parse_json
from hippo.problem.gpus import gpu
from hippo.problem.load import MAX_BATCH
from hippo.problem.model import Model, gpt_model
from hippo.problem.table import Table
from hippo.problem.workload import Software
from hippo.units import bytes_per_s_from_gbps

USUAL_VOCAB = 51200  # GPT-2's 50257, padded: what Megatron-LM runs use where a row does not say
MICRO_BATCHES_PER_STAGE = 8  # of a row that reports a rate but no batch: so many that the bubble hardly counts
SHARDING = {
    "none": "none",
    "zero0": "none",
    "zero1": "optimizer",
    "distributed-optimizer": "optimizer",
    "zero2": "gradients",
    "fsdp-grad-op": "gradients",
    "fsdp-zero2-style": "gradients",
    "zero3": "full",
    "fsdp-full": "full",
    "fsdp2-full": "full",
}
PRECISION = {name: name for name in ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")} | {"fp8-cs": "fp8"}


_KEYS = (
    *("id", "family", "source", "notes", "model", "gpus", "gpu_type", "dp", "tp", "pp", "cp", "ep", "interleave_v"),
    *("micro_batch", "global_batch", "recompute", "sequence_parallel", "precision", "sharding", "measured"),
    *("memory_gb_per_gpu", "network"),
)
_MODEL = ("name", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq", "gated_mlp")
_MEASURED = (
    *("seconds_per_iter", "seconds_per_iter_derived", "tokens_per_s_per_gpu", "tokens_per_gpu_hour", "mfu", "oom"),
    *("model_tflops_per_gpu", "hw_tflops_per_gpu", "hfu"),
)


@dataclass(frozen=True)
class PublishedRun:
    """One published run. ``None`` = the row does not say; ``published`` fills it by a general rule."""

    id: str
    family: str
    model: Model | None
    gpu: Gpu
    gpus: int
    dp: int | None
    tp: int | None
    pp: int | None
    cp: int
    ep: int | None
    interleave: int | None
    micro_batch: int | None
    global_batch: int | None
    seq: int
    recompute: str | None
    sequence_parallel: bool | None
    precision: str
    sharding: str
    software: Software
    node_bytes_per_s: float | None  # where the row states the node's links
    fp32_gradients: bool
    measured_s: float | None  # None: out of memory, or nothing to compare with
    out_of_memory: bool
    memory_gb: float | None
    refusal: str | None = None
    cluster: Cluster | None = None  # where its GPUs lie in several places; None: in one, as the numbers above say
    placement: str = "in order"  # of its ranks on the GPUs of ``cluster``: in order, scheduled, random
    schedule: str = "1f1b"
    runtime: str = "ideal"
    achieved: tuple[str, ...] = ()  # shares of the calibration that are 1: its network is what it achieves, measured
    apart: bool = False  # shown beside the others, not among them
    routing_skew: float = 1.0  # tokens of the fullest rank of experts over the mean
    etp: int | None = None  # ranks that an expert is cut over; None: tp, or as few as there are
    offloads: bool = False  # activations wait in the host's memory: what its GPUs hold is not predicted
    unknown: tuple[str, ...] = ()  # keys of the row that nothing reads


def load_cases(path: str | Path) -> tuple[PublishedRun, ...]:
    """Cases of a JSON list of rows, or an object with ``rows``; ``InputError`` names file, key, value and remedy."""
    source = str(path)
    return cases_of(parse_json(read_text(path, what="file of cases"), source), source)


def cases_of(rows: Any, source: str) -> tuple[PublishedRun, ...]:
    """Cases of a document that was read; raises as ``load_cases``."""
    if isinstance(rows, dict) and isinstance(rows.get("rows"), list):
        rows = rows["rows"]
    if not isinstance(rows, list):
        raise InputError("the file must hold a list of rows", source=source, remedy="docs/contracts.md has the form")
    if not rows:
        raise InputError("the file holds no rows", source=source, remedy="give one row at least")
    return tuple(_Row(row, source, f"[{index}]").case() for index, row in enumerate(rows))


@dataclass(frozen=True)
class _Row:
    """One row being read; every complaint names where it stands."""

    row: Any
    source: str
    where: str

    def case(self) -> PublishedRun:
        """The row as a case."""
        if not isinstance(self.row, dict):
            self._complain("", self.row, "a row must be an object", "give an object with the keys of docs/contracts.md")
        row = self.row
        self._refuse_misspelt("", row, _KEYS)
        trained, refusal = self._model()
        measured = self._object("measured")
        self._refuse_misspelt(".measured", measured, _MEASURED)
        notes = f"{row.get('notes') or ''}"
        device = self._gpu()
        precision = self._one_of("precision", PRECISION)
        sharding = self._one_of("sharding", SHARDING)
        software = _software(device, self._text("sharding"), f"{notes} {row.get('source') or ''}")
        achieved = self._network()
        case = PublishedRun(
            id=self._text("id"),
            family=self._text("family"),
            model=trained,
            gpu=device,
            gpus=self._count("gpus", required=True, most=MAX_GPUS) or 1,
            dp=self._count("dp"),
            tp=self._count("tp"),
            pp=self._count("pp") or _stated(notes, "PP"),
            cp=self._count("cp") or 1,
            ep=self._count("ep") or _stated(notes, "EP"),
            interleave=self._count("interleave_v"),
            micro_batch=self._count("micro_batch"),
            global_batch=self._count("global_batch", most=MAX_BATCH),
            seq=trained.max_seq if trained is not None else 1,
            recompute=self._recompute(),
            sequence_parallel=self._flag("sequence_parallel"),
            precision=precision,
            # Megatron-LM and NeMo shard the optimizer by default since Hopper; rows that say nothing read "none".
            sharding="optimizer" if sharding == "none" and software.overlap_dp else sharding,
            software=software,
            node_bytes_per_s=achieved or _node_link(f"{notes} {row.get('source') or ''}"),
            fp32_gradients="fp32 grad" in notes,
            measured_s=None,
            out_of_memory=bool(measured.get("oom")),
            memory_gb=self._number(row, "memory_gb_per_gpu"),
            refusal=refusal,
            achieved=("bus_efficiency_inter",) if achieved else (),
            offloads="in host memory" in self._text("recompute").lower(),
            unknown=tuple(key for key in row if key not in _KEYS),
        )
        return self._measure(case, measured)

    def _network(self) -> float | None:
        """Bytes/s that collectives get through a node's network, as measured: of the row, else of its family."""
        given = self.row.get("network") or _measured_networks().get(self.row.get("family"))
        if given is None:
            return None
        if not isinstance(given, dict):
            self._complain("network", given, "must be an object", 'write {"node_gbps": .., "source": ".."}')
        gbps = self._number(given, "node_gbps", prefix="network.")
        if gbps is None:
            self._complain("network.node_gbps", None, "is missing", "give what a node's network achieves, in Gbit/s")
        return bytes_per_s_from_gbps(gbps)

    def _measure(self, case: PublishedRun, measured: Mapping[str, Any]) -> PublishedRun:
        values = {key: self._number(measured, key, prefix="measured.") for key in measured if key != "oom"}
        if case.refusal or case.out_of_memory:
            return case
        if case.global_batch is None and case.pp:
            lanes = case.gpus // ((case.tp or 1) * case.pp * case.cp)
            case = replace(case, global_batch=max(1, lanes) * case.pp * MICRO_BATCHES_PER_STAGE)
        seconds = measured_seconds(case, values)
        if seconds is None:
            return replace(case, refusal="no measured time, rate or utilisation to compare with")
        return replace(case, measured_s=seconds)

    def _model(self) -> tuple[Model | None, str | None]:
        sizes_of = self._object("model")
        self._refuse_misspelt(".model", sizes_of, _MODEL)
        inner = _Row(sizes_of, self.source, f"{self.where}.model")
        name = inner._text("name")
        limits = {"layers": MAX_BLOCKS, "hidden": MAX_HIDDEN, "heads": MAX_HEADS, "seq": MAX_WIDTH}
        sizes = {key: inner._count(key, most=most) for key, most in limits.items()}
        missing = [key for key, value in sizes.items() if value is None]
        known = _named(name) if missing else None
        if known is not None:
            return replace(known, max_seq=sizes["seq"] or known.max_seq), None
        if missing:
            return None, f"the row does not give the model's {', '.join(missing)}"
        layers, hidden, heads, seq = (int(value or 0) for value in sizes.values())
        if heads > hidden:
            inner._complain("heads", heads, f"is more than hidden ({hidden})", "correct one of them")
        plain = name.startswith("MPT")  # neither biases nor dropout (llm-foundry: no_bias, attn_pdrop, resid_pdrop)
        built = gpt_model(
            name,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=inner._count("kv_heads", most=MAX_HEADS),
            ffn=inner._count("ffn", most=MAX_WIDTH),
            vocab=inner._count("vocab", most=MAX_VOCAB) or USUAL_VOCAB,
            seq=seq,
            gated=bool(inner._flag("gated_mlp")),
            bias=False if plain else None,
            norm_bias=False if plain else None,
            source=str(self.row.get("source") or ""),
        )
        return built, None

    def _gpu(self) -> Gpu:
        name = self._text("gpu_type")
        try:
            return gpu(name)
        except InputError as error:
            raise InputError(
                error.problem, source=self.source, key=f"{self.where}.gpu_type", remedy=error.remedy
            ) from None

    def _recompute(self) -> str | None:
        text = self._text("recompute").lower()
        for name in ("none", "selective", "full"):
            if text.startswith(name):
                return name
        if text.startswith("unspecified"):
            return None
        self._complain("recompute", text, "unknown recomputation", "use none, selective, full or unspecified")

    def _refuse_misspelt(self, place: str, values: Mapping[str, Any], known: Sequence[str]) -> None:
        Table(values, self.source, f"{self.where}{place}").refuse_misspelt(known)

    def _object(self, key: str) -> Mapping[str, Any]:
        value: object = self.row.get(key)
        if not isinstance(value, dict):
            self._complain(key, value, "an object is missing", "give it as in docs/contracts.md")
        return value

    def _text(self, key: str) -> str:
        value: object = self.row.get(key)
        if not isinstance(value, str) or not value:
            self._complain(key, value, "a text is missing", "give it as in docs/contracts.md")
        return value

    def _one_of(self, key: str, names: Mapping[str, str]) -> str:
        value = self._text(key)
        if value not in names:
            self._complain(key, value, "unknown value", f"use one of {', '.join(sorted(names))}")
        return names[value]

    def _flag(self, key: str) -> bool | None:
        value: object = self.row.get(key)
        if value is not None and not isinstance(value, bool):
            self._complain(key, value, "must be true, false or null", "give a JSON boolean")
        return value

    def _count(self, key: str, *, required: bool = False, most: int = 10**9) -> int | None:
        value: object = self.row.get(key)
        if value is None and not required:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            self._complain(key, value, "must be a positive whole number", f"write a number from 1 to {most}")
        return value

    def _number(self, holder: Mapping[str, Any], key: str, prefix: str = "") -> float | None:
        value = holder.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            self._complain(prefix + key, value, "must be a positive finite number", "give a measured figure or null")
        return float(value)

    def _complain(self, key: str, value: object, problem: str, remedy: str) -> NoReturn:
        place = f"{self.where}.{key}" if key else self.where
        raise InputError(problem, source=self.source, key=place, value=value, remedy=remedy)


def _named(name: str) -> Model | None:
    """The model of the catalogue with the longest name that ``name`` begins with."""
    lower = name.lower()
    found = [known for known in (*MODELS, *ALIASES) if lower.startswith(known)]
    return model(max(found, key=len)) if found else None


def _stated(notes: str, letters: str) -> int | None:
    """A degree that the notes state, such as ``PP16``."""
    found = re.search(rf"\b{letters}(\d+)\b", notes)
    return int(found.group(1)) if found else None


def _software(device: Gpu, sharding: str, text: str) -> Software:
    """What the row's software does, from what the row states.

    Megatron-LM and DeepSpeed on Volta and Ampere (published before 2023) had neither fused attention nor overlap.
    PyTorch's FSDP has FlashAttention-2 and overlaps gathers, but not tensor-parallel collectives unless "async TP" is
    named, and runs eager elementwise kernels unless torch.compile is named. DeepSeek's own system computes beside the
    exchange of tokens (DeepSeek-V3, section 3.2.1).
    """
    torch = sharding.startswith("fsdp") and "Megatron" not in text
    modern = device.family not in ("volta", "ampere")
    eager = torch and ("torch.compile" not in text or "no torch.compile" in text)
    attention = "flash2" if torch else "tuned" if modern else "unfused"
    overlap_tp = "async TP" in text if torch else modern
    return Software(
        attention,
        fused_elementwise=not eager,
        overlap_dp=modern or torch,
        overlap_tp=overlap_tp,
        overlap_ep="DeepSeek-V3" in text,
        dispatcher="deepep" if "DeepSeek-V3" in text else "alltoall",
        blocking_launches="CUDA_LAUNCH_BLOCKING" in text,
        list_gathers=sharding == "zero3" and not modern,
        # llm-foundry's fused_crossentropy: logits and their gradients, both 16 bit.
        logit_bytes=4.0 if "llm-foundry" in text else 6.0 if modern and not torch else 10.0,
        late_sums=sharding.startswith("zero"),  # DeepSpeed's names
    )


@cache
def _measured_networks() -> Mapping[str, Any]:
    """What the networks of sources achieve, by family; each with where it was measured."""
    text = resources.files("hippo.score").joinpath("networks.json").read_text(encoding="utf-8")
    networks: dict[str, Any] = json.loads(text)
    return networks


def _node_link(text: str) -> float | None:
    """Bytes/s of one node, one direction, where the text states its links: "4 OmniPath 100Gb", "inter-node 800 Gb"."""
    several = re.search(r"(\d+) (?:OmniPath|InfiniBand|HDR|NDR|EDR|RoCE) (\d+) ?Gb", text)
    if several:
        return bytes_per_s_from_gbps(float(several.group(1)) * float(several.group(2)))
    single = re.search(r"inter-node (\d+) ?Gb", text)
    return bytes_per_s_from_gbps(float(single.group(1))) if single else None


def model_flops(case: PublishedRun) -> float:
    """Model FLOP of one step, formula of Narayanan et al. (2021): full attention square, recomputation not counted."""
    assert case.model is not None
    block = case.model.layers[1]
    tokens = (case.global_batch or 1) * case.seq
    attention = block.attention
    core = 0 if attention is None else 4 * case.seq * attention.heads * attention.head_dim
    blocks = case.model.num_blocks * (2 * block.active_parameters + core)
    return 3.0 * tokens * (blocks + 2 * case.model.vocab * case.model.hidden)


def measured_seconds(case: PublishedRun, measured: Mapping[str, float | None]) -> float | None:
    """Seconds per step from what the row reports, the most direct figure first."""
    for key in ("seconds_per_iter", "seconds_per_iter_derived"):
        if measured.get(key):
            return measured[key]
    if case.global_batch is None:
        return None
    rate = measured.get("tokens_per_s_per_gpu")
    if rate is None and measured.get("tokens_per_gpu_hour"):
        rate = (measured["tokens_per_gpu_hour"] or 0.0) / 3600
    if rate:
        return case.global_batch * case.seq / (rate * case.gpus)
    flops = model_flops(case)
    if measured.get("model_tflops_per_gpu"):
        return flops / ((measured["model_tflops_per_gpu"] or 0.0) * 1e12 * case.gpus)
    if measured.get("hw_tflops_per_gpu"):
        again = 4 / 3 if case.recompute == "full" else 1.0
        return flops * again / ((measured["hw_tflops_per_gpu"] or 0.0) * 1e12 * case.gpus)
    if measured.get("mfu"):
        return flops / ((measured["mfu"] or 0.0) * case.gpu.peak_flops["bf16"] * case.gpus)
    return None
