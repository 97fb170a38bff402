"""The one form of learned weights: written, read, refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hippo.errors import InputError
from hippo.learn import weights
from hippo.learn.weights import Form

FORM = Form("toy policy", {"seen": ["bandwidth", "latency"]}, "train one")
ARRAYS = {"first": np.arange(6.0, dtype=np.float32).reshape(2, 3), "inside/last": np.array([3.5])}


def test_arrays_and_how_they_were_made_come_back_as_they_were(tmp_path: Path) -> None:
    content = FORM.packed(ARRAYS, updates=7)
    (tmp_path / "toy").write_bytes(content)
    arrays, made = FORM.read(tmp_path / "toy")
    assert made == {"updates": 7}
    assert {name: (each.dtype, each.tolist()) for name, each in arrays.items()} == {
        name: (each.dtype, each.tolist()) for name, each in ARRAYS.items()
    }
    assert FORM.packed(arrays, **made) == content


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(FORM, kind="other policy"), "kind: is no toy policy"),
        (
            replace(FORM, features={"seen": ["latency", "bandwidth"]}),
            "features.seen: is a toy policy for other",
        ),
        (replace(FORM, features={}), "features.seen"),
    ],
)
def test_weights_of_another_kind_or_for_other_features_are_refused(other: Form, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        FORM.unpacked(other.packed(ARRAYS), "some.npz")
    assert str(error.value).startswith("some.npz: ")
    assert "To fix: train one" in str(error.value)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "FORMAT", 2)
    content = FORM.packed(ARRAYS)
    monkeypatch.undo()
    with pytest.raises(InputError, match="another version"):
        FORM.unpacked(content, "some.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello", b"[1, 2]", bytes(1000)])
def test_what_is_no_such_file_is_refused(content: bytes) -> None:
    with pytest.raises(InputError, match="is no toy policy, or a broken one"):
        FORM.unpacked(content, "some.npz")


def test_a_file_that_unpacks_to_more_than_any_weights_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "MOST_BYTES", 10_000)
    content = FORM.packed({"zeros": np.zeros(10_000)})
    assert len(content) < 10_000
    with pytest.raises(InputError, match="is no toy policy"):
        FORM.unpacked(content, "some.npz")


def test_objects_are_never_unpickled() -> None:
    content = FORM.packed({"code": np.array([print], dtype=object)})
    with pytest.raises(InputError, match="is no toy policy"):
        FORM.unpacked(content, "some.npz")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="toy policy does not exist"):
        FORM.read(tmp_path / "none")
    with pytest.raises(InputError, match="cannot read the toy policy"):
        FORM.read(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0.0, 1.0, exclude_max=True), value=st.integers(1, 255), cut=st.booleans())
def test_damage_is_noticed_or_harmless(where: float, value: int, cut: bool) -> None:
    """A byte changed, or the rest lost: refused, or (a byte that says nothing) the same arrays as before."""
    data = bytearray(FORM.packed(ARRAYS))
    place = int(where * len(data))
    data[place] ^= value
    try:
        found, _ = FORM.unpacked(bytes(data[:place]) if cut else bytes(data), "some.npz")
    except InputError:
        return
    assert not cut
    assert {name: each.tolist() for name, each in found.items()} == {k: v.tolist() for k, v in ARRAYS.items()}
