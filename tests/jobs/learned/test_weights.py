"""Files of weights: there and back, and those that are something else."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from hippo.errors import InputError
from hippo.jobs.learned.weights import FORM, KeyWeights, packed, read, shipped, unpacked, untrained


def without(weights: KeyWeights, name: str) -> bytes:
    stream = BytesIO()
    np.savez(stream, **{key: value for key, value in weights._asdict().items() if key != name})
    return stream.getvalue()


def test_weights_come_back_as_they_were():
    given = shipped()
    found = unpacked(packed(given), "a file")
    assert all(np.array_equal(one, other) for one, other in zip(found, given, strict=True))
    assert [each.dtype for each in found] == [each.dtype for each in untrained()]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        packed(untrained())[:-40],
        without(untrained(), "prior"),
        packed(untrained()._replace(hazard_last=np.zeros(5, np.float32))),
        packed(untrained()._replace(prior=np.full(40, np.nan))),
        packed(untrained()._replace(prior=np.full(40, 1.5))),
        packed(untrained()._replace(hazard_first=np.zeros((3, 16), np.float32))),
    ],
    ids=["empty", "text", "cut off", "a table missing", "a shape", "nan", "no hazard", "other features"],
)
def test_what_is_no_policy_is_refused(content: bytes):
    with pytest.raises(InputError, match="jobs policy"):
        unpacked(content, "some.npz")


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(InputError, match="does not exist"):
        read(tmp_path / "none.npz")


def test_a_file_with_the_push_of_before_is_read_without_it():
    given = shipped()._asdict()
    found = unpacked(FORM.packed({**given, "key_last": np.ones(32, np.float32)}), "of before")
    assert all(np.array_equal(given[name], each) for name, each in found._asdict().items())
