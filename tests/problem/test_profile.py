"""Profiles: rows by kind or by index, complete for every layout they offer."""

from __future__ import annotations

from typing import Any

import pytest

from hippo.errors import InputError
from hippo.problem.catalogue.models import model
from hippo.problem.gpus import gpu
from hippo.problem.profile import check_profile, profile_from_document, profile_to_document


def row(**changes: Any) -> dict[str, Any]:
    usual = {
        "layer_kind": "block",
        "gpu": "A100",
        "tp": 1,
        "micro_batch": 2,
        "forward_s": 0.01,
        "backward_s": 0.02,
        "parameter_bytes": 1e9,
        "activation_bytes": 2e8,
        "output_bytes": 3e7,
    }
    return {key: value for key, value in {**usual, **changes}.items() if value is not ...}


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"precision": "bf16", "state_bytes_per_parameter": 18, "rows": list(rows)}


WHOLE = (row(layer_kind="embedding"), row(), row(layer_kind="head", weight_gradient_s=0.005))


def test_rows_are_read_and_written_the_same() -> None:
    profile = profile_from_document(document(*WHOLE), source="p.json")
    assert (profile.precision, profile.state_bytes_per_parameter) == ("bf16", 18.0)
    assert profile.rows[0].gpu == "A100-SXM-80GB"
    assert (profile.rows[1].weight_gradient_s, profile.rows[2].weight_gradient_s) == (None, 0.005)
    assert profile_from_document(profile_to_document(profile), source="p.json") == profile


def test_a_whole_profile_passes_and_an_index_fills_a_gap() -> None:
    whole = profile_from_document(document(*WHOLE), source="p.json")
    check_profile(whole, model("gpt2"), gpu("A100"), source="p.json")
    by_index = profile_from_document(
        document(row(layer_kind=..., layer_index=0), row(), row(layer_kind=..., layer_index=13)), source="p.json"
    )
    check_profile(by_index, model("gpt2"), gpu("A100"), source="p.json")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            WHOLE[:2],
            "tp 1, micro_batch 2, recompute none: no row covers the head (layer 13 of 14), nor 0 other layers.",
        ),
        (
            (*WHOLE, row(tp=2)),
            "tp 2, micro_batch 2, recompute none: no row covers the embedding (layer 0 of 14), nor 1",
        ),
        (tuple({**each, "gpu": "H100"} for each in WHOLE), "no row is measured on A100-SXM-80GB, the cluster's GPU"),
        (
            (*WHOLE, row(layer_kind=..., layer_index=99)),
            "rows: layer_index: tp 1, micro_batch 2, recompute none: the model",
        ),
    ],
)
def test_gaps_are_named(rows: tuple[dict[str, Any], ...], words: str) -> None:
    profile = profile_from_document(document(*rows), source="p.json")
    with pytest.raises(InputError) as caught:
        check_profile(profile, model("gpt2"), gpu("A100"), source="p.json")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (document(), "p.json: rows: is empty"),
        (document(row(), row()), "p.json: rows: hold 2 rows for one layer and layout"),
        (document(row(layer_index=3)), "p.json: rows[0].layer_kind: and layer_index are both given"),
        (document(row(layer_kind=...)), "p.json: rows[0].layer_kind: and layer_index are both missing"),
        (document(row(layer_kind="norm")), "p.json: rows[0].layer_kind: unknown layer_kind 'norm'"),
        (document(row(forward_s=-1)), "p.json: rows[0].forward_s: is out of range (got -1)"),
        (document(row(forward_s=float("nan"))), "p.json: rows[0].forward_s: must be a finite number (got nan)"),
        (document(row(forward_s=..., forward_ms=10)), "p.json: rows[0].forward_ms: unknown key (got 10)"),
        ({**document(*WHOLE), "precision": "int3"}, "p.json: precision: unknown precision 'int3'"),
        ([], "p.json: must be a mapping (key: value) (got [])"),
    ],
)
def test_mistakes_are_refused(bad: object, words: str) -> None:
    with pytest.raises(InputError) as caught:
        profile_from_document(bad, source="p.json")
    assert words in str(caught.value)
