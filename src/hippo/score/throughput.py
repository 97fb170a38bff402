"""Published throughputs, one configuration each: rows in the form of ``training_throughput.csv``, parsed.

What a row does not state has one default by its source and date, in ``SOFTWARE`` and ``SEQUENCE``; degrees that it
leaves open are filled as everywhere (``published``). Fine-tuning of adapters trains other layers: such rows are left
out, as are those that ``training_open.json`` holds already (``in_hippo``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hippo.errors import InputError
from hippo.files import read_text
from hippo.problem.catalogue.models import MODELS
from hippo.problem.cluster import Gpu
from hippo.problem.gpus import gpu
from hippo.problem.model import Model, gpt_model, with_next_tokens
from hippo.problem.workload import Software
from hippo.score.cases import USUAL_VOCAB, PublishedRun, measured_seconds, model_flops
from hippo.score.interval import has_experts
from hippo.score.pipelines import table_rows

COLUMNS = (
    *("family", "model", "task", "gpu_type", "gpus", "precision", "tp", "pp", "vp", "cp", "ep", "etp", "dp", "fsdp"),
    *("mbs", "gbs", "seq", "ga", "recompute", "schedule_or_dispatcher", "tokens_per_s_per_gpu", "model_tflops_per_gpu"),
    *("mfu", "step_s", "step_s_is", "step_cv", "step_p05_s", "step_p95_s", "memory_gb", "oom", "network", "notes"),
    *("in_hippo", "source"),
)
WHOLE = ("pre-training", "pretrain", "sft", "fp8")
"""Tasks that train all of the model."""
PRECISIONS: Mapping[str, str] = {
    **{"bf16": "bf16", "fp16": "fp16", "te bf16": "bf16", "fp8": "fp8", "fp8-cs": "fp8", "fp8_cs": "fp8"},
    **{"mxfp8": "mxfp8", "fp8-mx": "mxfp8", "fp8_mx": "mxfp8", "nvfp4": "nvfp4"},
    **{"fp8 rowwise": "fp8", "fp8 tensorwise": "fp8", "fp4 (fp8 attention)": "nvfp4", "fp8_full": "fp8"},
}
MODERN = Software(dispatcher="deepep", context_way="ring")
"""Megatron-LM with Transformer Engine and DeepEP: attention tuned for the GPU, collectives beside computation."""
SOFTWARE: tuple[tuple[str, Software], ...] = (
    (r"nemo-automodel", replace(MODERN, overlap_tp=False)),
    (
        r"torchtitan|fms-fsdp",
        Software("flash2", fused_elementwise=False, overlap_tp=False, context_way="gather", logit_bytes=10.0),
    ),
    (r"mindspeed|zero-bubble", replace(MODERN, attention="flash2", overlap_tp=False)),
)
"""What the software of a family does, where its rows do not say otherwise; the first that matches."""
RECIPES: tuple[tuple[str, Mapping[str, str | bool]], ...] = (
    (r"", {"recompute": "none", "overlap_ep": False, "graphs": "none"}),
    (r"^25\.11 \S* b|^25\.11 (gpt|qwen3-30b\S* h)|^26\.02\S* gpt", {"dispatcher": "alltoall"}),
    (r"^26\.02 qwen3-next|gpt-oss\S* h100|qwen3-235b\S* b200", {"dispatcher": "alltoall"}),
    (r"^25\.11 (deepseek|qwen3-30b)\S* h|^26\.02 qwen3-30b\S* h|^26\.04\.01 deepseek\S* b", {"overlap_ep": True}),
    (r"^25\.11 (deepseek\S* gb200|qwen3\S* gb300)|qwen3-30b\S* gb300", {"graphs": "routing"}),
    (r"^25\.11 (deepseek\S* gb300|qwen3-235b\S* gb200)|gpt-oss\S* g?b300|nemotron-3", {"graphs": "attention"}),
    (r"^26\S* (deepseek\S* gb200|qwen3-235b\S* gb300)|^26\.04\S* (qwen3-next|deepseek\S* b)", {"graphs": "attention"}),
    (r"nemotron-3-super\S* b200 mxfp8", {"graphs": "none"}),
    (r"deepseek", {"recompute": "mla_up_proj"}),
    (r"^25\.11 deepseek\S* gb300", {"recompute": "moe_act"}),
    (r"gpt-oss\S* (g?b200|h100)|nemotron-3-super\S* (b200 mxfp8|b300 nvfp4)", {"recompute": "layernorm+moe_act"}),
    (r"^26\.04\S* deepseek\S* gb200|^26\.0[68]\S* deepseek\S* gb300", {"recompute": "none"}),
    (r"^26\.0[68]\S* (deepseek|qwen3)\S* gb", {"overlap_ep": True, "graphs": "full", "fused_experts": True}),
)
"""What the recipes of Megatron-Bridge set for mixtures (scripts/performance/configs at its tags v0.2 to v0.5,
Apache-2.0): patterns of release, model, GPU and precision; all that match, later ones over earlier ones."""
DROPLESS_SKEW = 1.5
"""Of rows that say that their router is free, against those that say that it is balanced by force."""
SEQUENCE: tuple[tuple[str, int], ...] = (
    (r"nemotron4", 4096),
    (r"llama 3|grok|maxtext llama3", 8192),
    (r"llama ?2", 4096),
    (r"qwen3", 4096),
    (r"gpt3|gpt-", 2048),
)
"""Tokens of a sequence by model, where a row does not say."""
PRECISION: tuple[tuple[str, str], ...] = ((r"mlperf", "fp8"), (r"megatron-bridge $", "fp8"))
"""Of a family, where a row does not say: submissions to MLPerf train in 8 bit where the GPU can."""
FULL_SQUARE = ("nemo-long-sequence",)
"""Families whose rates count all of the attention's square."""
USUAL_BATCH = 2048
"""Sequences of a step of a family that trains a large model and states none."""
NOT_REPRESENTED: tuple[tuple[str, str], ...] = (
    (r"deepseekv4", "its attention is not represented"),
    (r"gemma4", "its sizes are not published in these tables"),
)
SIZES: tuple[tuple[str, str], ...] = (
    (r"deepseek.?v3", "deepseek-v3"),
    (r"qwen3.?30b|qwen3 moe 30b", "qwen3-30b-a3b"),
    (r"qwen3.?235b", "qwen3-235b-a22b"),
    (r"llama.?3(\.1)?.?8b|llama31_8b", "llama-3-8b"),
    (r"llama.?3(\.1)?.?70b", "llama-3-70b"),
    (r"llama.?3(\.1)?.?405b|llama31_405b", "llama-3-405b"),
    (r"llama.?2.?7b", "llama-2-7b"),
    (r"llama.?2.?13b", "llama-2-13b"),
    (r"llama.?2.?70b", "llama-2-70b"),
    (r"^gpt3$|gpt-175b", "gpt3-175b"),
    (r"qwen2\.5.?32b", "qwen2.5-32b"),
    (r"gpt.?oss.?120b", "gpt-oss-120b"),
    (r"qwen3.next.?80b", "qwen3-next-80b-a3b"),
    (r"nemotron.?(3|v3).nano", "nemotron-3-nano-30b-a3b"),
    (r"nemotron.?(3|v3).super", "nemotron-3-super-120b-a12b"),
    (r"nemotron.?(3|v3).ultra", "nemotron-3-ultra-550b-a55b"),
    (r"nemotron5-h.56b", "nemotron-h-56b"),
    (r"mixtral.?8x22b", "mixtral-8x22b"),
    (r"mixtral.?8x7b", "mixtral-8x7b"),
)
"""Names of these tables and the catalogue's."""
NEXT_TOKENS: tuple[tuple[str, int], ...] = (
    (r" deepseek-v3$", 1),
    (r"^nemo-automodel ", 0),
    (r" nemotron-3-(super|ultra)", 2),  # mtp_num_layers of Megatron-Bridge's provider; its FLOP a token agree
)
"""Modules that predict further tokens, by family and model; none elsewhere."""


MODULES: Mapping[str, str] = {
    **{"norm": "layernorm", "layernorm": "layernorm", "act": "moe_act", "moe": "moe"},
    **{"shared_expert": "shared_experts", "mla_up_proj": "mla_up_proj"},
}
"""Modules that are computed again as these tables name them, and as Megatron-LM does."""
DESCRIBED: tuple[tuple[str, str, int, int, int, int, int, int, bool, str], ...] = (
    ("nemotron4 15b", "nemotron-4-15b", 32, 6144, 48, 8, 24576, 256000, False, "arXiv 2402.16819"),
    ("nemotron4 340b", "nemotron-4-340b", 96, 18432, 96, 8, 73728, 256000, False, "arXiv 2406.11704"),
    ("llama2.34b|codellama 34b", "llama-2-34b", 48, 8192, 64, 8, 22016, 32000, True, "arXiv 2307.09288"),
    ("llama3 13b", "llama-3-13b", 40, 5120, 40, 40, 13824, 128256, True, "github pytorch/torchtitan, of 2024"),
)
"""Models that the catalogue lacks: names in these tables, blocks, hidden, heads, kv heads, ffn, vocabulary, whether the
feed-forward network is gated, and who prints these sizes."""


@cache
def _described() -> tuple[tuple[str, Model], ...]:
    found = []
    for pattern, name, layers, hidden, heads, kv_heads, ffn, vocab, gated, source in DESCRIBED:
        model = gpt_model(
            name,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            ffn=ffn,
            vocab=vocab,
            seq=4096,
            gated=gated,
            bias=False,
            tied=False,
            learned_positions=False,
            source=source,
        )
        found.append((pattern, model))
    return tuple(found)


def is_throughput(path: Path) -> bool:
    """Whether a table has this form."""
    return "tokens_per_s_per_gpu" in read_text(path, what="table of runs").partition("\n")[0].split(",")


def cases(path: Path) -> tuple[PublishedRun, ...]:
    """The rows of a file that train whole models and stand nowhere else; what a row lacks is its refusal."""
    rows = table_rows(path, what="table of throughputs", needed=COLUMNS[:4], told=COLUMNS)
    found = []
    for index, row in enumerate(rows):
        if row["task"].strip().lower() in WHOLE and not row.get("in_hippo"):
            values = {key: value or "" for key, value in row.items() if key}
            kept = {key: value if key == "family" else value.strip() for key, value in values.items()}
            found.append(_ThroughputRow(kept, index).case())
    return tuple(found)


@dataclass(frozen=True)
class _ThroughputRow:
    """One row being read; ``values``: text by column."""

    values: Mapping[str, str]
    index: int

    def case(self) -> PublishedRun:
        """The row as a case."""
        device, refusal = self._gpu()
        trained, why = self._model()
        gpus, notes = self._whole("gpus"), self.values.get("notes", "")
        seq = self._whole("seq") or next((s for name, s in SEQUENCE if self._says(name)), 0)
        refusal = refusal or why or self._holes(gpus, seq)
        if "thrash" in notes:
            refusal = refusal or "it stood still while its allocator looked for memory"
        said = self.values.get("precision", "").lower()
        usual = next((each for name, each in PRECISION if re.search(name, self.family_and_version)), "bf16")
        usual = usual if usual in device.peak_flops else "bf16"
        precision = PRECISIONS.get(said or usual)
        if precision is None:
            refusal = refusal or f"precision {self.values['precision'][:20]} is not known"
        recipe = self._recipe(trained, device, precision or "bf16")
        software, fully = self._software(device, recipe), self._fully_sharded()
        one = 1 if fully else None  # who shards fully and names no other degree has none
        if fully and trained is not None and has_experts(trained) and not self._degree("ep"):
            refusal = refusal or "it does not say over how many ranks its experts lie"
        if re.search("deepep|hybridep", self.values.get("schedule_or_dispatcher", "").lower()):
            refusal = refusal or (None if self._degree("ep") else "it names a dispatcher of experts, and not ep")
        pp, micro = self._degree("pp") or one, self._whole("mbs")
        tp, cp = self._degree("tp") or one, self._degree("cp") or 1
        batch = self._whole("gbs") or self._batch((gpus or 1) // ((tp or 1) * (pp or 1) * cp), pp)
        if self.family.startswith("torchtitan"):  # whose batch of a replica a pipeline takes one by one
            micro = 1 if (pp or 1) > 1 else micro
        if batch is None:
            refusal = refusal or "the row does not give gbs"
        return self._measured(
            PublishedRun(
                id=f"{self.family}[{self.index}]",
                family=self.family,
                model=trained if trained is None or not seq else replace(trained, max_seq=seq),
                gpu=device,
                gpus=gpus or 1,
                dp=None,
                tp=tp,
                pp=pp,
                cp=cp,
                ep=self._degree("ep"),
                etp=self._degree("etp"),
                interleave=self._degree("vp") or (1 if self._plain() else None),
                micro_batch=micro,
                global_batch=batch,
                seq=seq or 1,
                recompute=self._recompute() or (str(recipe["recompute"]) if recipe else None),
                sequence_parallel=True if self.family.startswith("torchtitan") and (tp or 1) > 1 else None,
                precision=precision or "bf16",
                sharding="full" if fully else "optimizer",
                software=software,
                node_bytes_per_s=None,
                fp32_gradients=self.family.startswith("mega") and "bridge" not in self.family,
                measured_s=None,
                out_of_memory=self.values.get("oom", "").lower() in ("1", "true", "yes", "oom"),
                memory_gb=self._number("memory_gb"),
                refusal=refusal,
                routing_skew=DROPLESS_SKEW if notes.strip() == "dropless" else 1.0,
                offloads="offload" in notes,
                unknown=tuple(key for key in self.values if key not in COLUMNS),
            )
        )

    @property
    def family(self) -> str:
        """The source and its version."""
        return self.values["family"].strip() or "unnamed"

    @property
    def family_and_version(self) -> str:
        """As it is written: a space at the end is a version that is not named."""
        return self.values["family"]

    def _fully_sharded(self) -> bool:
        text = self.values.get("fsdp", "").lower()
        printed = re.match(r"(\d+) \((\d+)\)$", text)
        if printed is not None:
            text = printed[2 if self._second() else 1]
        if self.family.startswith("tpu-recipes") or "maxtext" in self.values.get("notes", ""):
            return True  # MaxText shards fully where nothing else is said
        switch = "bridge" in self.family  # there 1 means yes
        return text == "on" or (text.isdecimal() and int(text) >= (1 if switch else 2))

    def _second(self) -> bool:
        """Of two precisions that share a row of the source, the second, which stands in brackets."""
        return "MX" in self.values.get("precision", "")

    def _plain(self) -> bool:
        return self.values.get("schedule_or_dispatcher", "").lower() == "1f1b"

    def _says(self, pattern: str) -> bool:
        return re.search(pattern, self.values["model"].lower()) is not None

    def _holes(self, gpus: int | None, seq: int) -> str | None:
        holes = [name for name, value in (("gpus", gpus), ("seq", seq)) if not value]
        return f"the row does not give {', '.join(holes)}" if holes else None

    def _gpu(self) -> tuple[Gpu, str | None]:
        name = re.sub(r"^DGX-|^NVIDIA |\(.*|Blackwell (Ultra )?GPU", "", self.values["gpu_type"]).strip()
        name = name or re.sub(r"^.*\(|-SXM.*|\).*", "", self.values["gpu_type"]).strip()
        try:
            return gpu({"H100-96GB-500W": "H100-96GB-HBM2e", "H200-SXM5-141GB": "H200"}.get(name, name)), None
        except InputError:
            return gpu("H100"), f"GPU {self.values['gpu_type'][:40]} is not in the catalogue"

    def _model(self) -> tuple[Model | None, str | None]:
        for pattern, why in NOT_REPRESENTED:
            if self._says(pattern):
                return None, why
        notes = self.values.get("notes", "")
        sizes = re.search(r"layers (\d+) hidden (\d+) ffn (\d+) heads (\d+) kv (\d+|None)", notes)
        found = next((each for pattern, each in _described() if self._says(pattern)), None)
        named = next((name for pattern, name in SIZES if self._says(pattern)), None)
        if found is None and named is not None:
            found = MODELS[named]
        if found is None and re.search(r"experts \d+ top", notes):
            return None, "the sizes of its experts are not known"
        if found is None and sizes is not None:
            layers, hidden, ffn, heads = (int(each) for each in sizes.groups()[:4])
            found = gpt_model(
                self.values["model"],
                layers=layers,
                hidden=hidden,
                ffn=ffn,
                heads=heads,
                kv_heads=None if sizes[5] == "None" else int(sizes[5]),
                vocab=USUAL_VOCAB,
                seq=4096,
                gated=True,
            )
        if found is None:
            return None, "the model's sizes are not known"
        fewer = re.search(r"(?:^|; |14 )layers (\d+)(?=;|$)|(\d+) layers", f"{notes}; {self.values['model']}")
        if fewer and (blocks := int(fewer[1] or fewer[2])) < found.num_blocks:
            found = replace(found, layers=(*found.layers[: 1 + blocks], found.layers[-1]))
        modules = next((many for pattern, many in NEXT_TOKENS if re.search(pattern, f"{self.family} {named}")), 0)
        return (found if self._says("w/o mtp") or not modules else with_next_tokens(found, modules)), None

    def _recipe(self, trained: Model | None, device: Gpu, precision: str) -> dict[str, str | bool]:
        """What its recipe sets, where the row is of a release with recipes and trains a mixture of experts."""
        release = re.match(r"megatron-bridge (25\.11|26\.\S+)$", self.family)
        if release is None or trained is None or not has_experts(trained):
            return {}
        told = f"{release[1]} {trained.name} {device.name} {precision}".lower()
        return {key: value for pattern, sets in RECIPES if re.search(pattern, told) for key, value in sets.items()}

    def _software(self, device: Gpu, recipe: Mapping[str, str | bool]) -> Software:
        said, notes = self.values.get("schedule_or_dispatcher", "").lower(), self.values.get("notes", "").lower()
        found = next((each for pattern, each in SOFTWARE if re.search(pattern, self.family_and_version)), MODERN)
        bridged = self.family.startswith("megatron-bridge") and device.family == "hopper"
        sets: dict[str, Any] = {"overlap_ep": bridged, **recipe}
        sets.pop("recompute", None)
        found = replace(found, **sets)
        if re.search("alltoall|^a2a", said):
            found = replace(found, dispatcher="alltoall")
        if "hybridep" in said:
            found = replace(found, dispatcher="hybridep")
        if re.search(r"(?<!no )ep overlap|1f1b overlap|a2a overlap|overlap on", f"{said}; {notes}"):
            found = replace(found, overlap_ep=True)
        return found

    def _batch(self, lanes: int, pp: int | None) -> int | None:
        steps, mbs, dp = self._whole("ga"), self._whole("mbs"), self._whole("dp")
        if steps and mbs and dp:
            return steps * mbs * dp
        if mbs and self.family.startswith("torchtitan"):
            return mbs * lanes
        return USUAL_BATCH if pp else None

    def _recompute(self) -> str | None:
        text = self.values.get("recompute", "").lower()
        if not text:
            return "none" if "offload" in self.values.get("notes", "") else None
        if "full" in text or text == "true":  # fms-fsdp: of every block
            return "full"
        named = [MODULES[word.strip()] for word in text.split(",") if word.strip() in MODULES]
        if named:
            return "+".join(named)
        return "none" if text.startswith("no") or text == "false" else "selective"

    def _measured(self, case: PublishedRun) -> PublishedRun:
        if case.refusal or case.out_of_memory:
            return case
        told = {
            "seconds_per_iter": self._number("step_s"),
            "tokens_per_s_per_gpu": self._number("tokens_per_s_per_gpu"),
        }
        seconds = measured_seconds(case, told)
        rate = self._number("model_tflops_per_gpu")
        if seconds is None and rate and case.global_batch:
            flops = model_flops(case) if case.family in FULL_SQUARE else causal_flops(case)
            seconds = flops / (rate * 1e12 * case.gpus)
        if seconds is None:
            return replace(case, refusal="no measured time, rate or utilisation to compare with")
        return replace(case, measured_s=seconds)

    def _degree(self, key: str) -> int | None:
        """A degree, or of several that are printed that of the row's precision: the first is for the first named."""
        if self.values.get(key):
            return self._whole(key)
        printed = re.search(rf"\b{key} printed as (\d+)? ?\((\d+)\)", self.values.get("notes", ""))
        if printed is None:
            return None
        return int(printed[2] if self._second() or not printed[1] else printed[1])

    def _whole(self, key: str) -> int | None:
        found = self._number(key)
        return int(found) if found and found == int(found) else None

    def _number(self, key: str) -> float | None:
        try:
            found = float(self.values.get(key) or "nan")
        except ValueError:
            return None
        return found if math.isfinite(found) and found > 0 else None


def causal_flops(case: PublishedRun) -> float:
    """Model FLOP of one step as frameworks of 2025 count them: half of the attention's square."""
    assert case.model is not None
    total = 0.0
    for layer in case.model.layers[1:-1]:
        attention = layer.attention
        total += 2 * layer.active_parameters
        if attention is not None and attention.linear is None:
            dims = 2 * attention.head_dim
            if (latent := attention.latent) is not None:
                dims = latent.qk_nope_head_dim + latent.qk_rope_head_dim + latent.v_head_dim
            total += case.seq * attention.heads * dims
    return 3.0 * (case.global_batch or 1) * case.seq * (total + 2 * case.model.vocab * case.model.hidden)
