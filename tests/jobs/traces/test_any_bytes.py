"""Whatever a file holds: it is read, or refused with a message; never anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hippo.errors import InputError
from hippo.jobs.traces.load import FORMATS, load_trace

from .test_load import GAVEL_7, GAVEL_10, HELIOS, PAI_JOBS, PAI_TASKS, PHILLY, SWF

OWN = (
    '{"hippo_jobs": 1, "jobs": [\n{"name": "a", "arrival_s": 0, "duration_s": 1, "runs_on": ["x"]},\n'
    '{"arrival_s": 2, "duration_s": 1}]}'
)
JSON = (
    '[{"jobid": "a", "attempts": [{"start_time": "2017-10-07 01:00:00", "end_time": null, "detail": []}], '
    '"submitted_time": "None"}]'
)
SAMPLES = (PHILLY, HELIOS, GAVEL_7, GAVEL_10, SWF, PAI_TASKS, PAI_JOBS, OWN, JSON)


def tried(path: Path, *, form: str | None, skip_bad: bool) -> int:
    """Jobs that were read; 0: refused."""
    try:
        return len(load_trace(path, form=form, skip_bad=skip_bad).workload)
    except InputError:
        return 0


@pytest.mark.parametrize("sample", SAMPLES)
def test_cut_off_anywhere(tmp_path: Path, sample: str):
    whole = sample.encode()
    path = tmp_path / "trace"
    path.write_bytes(whole)
    most = tried(path, form=None, skip_bad=True)
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        assert tried(path, form=None, skip_bad=True) <= most + 2  # a job whose last fields are gone may look whole


@given(
    sample=st.sampled_from(SAMPLES),
    place=st.floats(0, 1),
    put=st.binary(min_size=1, max_size=8) | st.sampled_from([b'"', b"\n", b",", b"-", b"1e400", b"\x00", b"[", b"}"]),
    length=st.integers(0, 12),
    form=st.none() | st.sampled_from(sorted(FORMATS)),
    skip_bad=st.booleans(),
)
@example(sample=OWN, place=0.0, put=b"[[[[[[[[", length=12, form="own", skip_bad=True)
def test_a_few_bytes_changed(
    tmp_path_factory: pytest.TempPathFactory,
    sample: str,
    place: float,
    put: bytes,
    length: int,
    form: str | None,
    skip_bad: bool,
):
    whole = sample.encode()
    at = int(place * len(whole))
    path = tmp_path_factory.mktemp("bytes") / "trace"
    path.write_bytes(whole[:at] + put + whole[at + length :])
    assert tried(path, form=form, skip_bad=skip_bad) >= 0


ATTEMPT = {
    "start_time": "2017-10-07 01:00:00",
    "end_time": "2017-10-07 02:00:00",
    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}],
}
LOGGED = {"jobid": "a", "user": "u", "submitted_time": "2017-10-07 00:59:00", "attempts": [ATTEMPT]}
OWNED = {"name": "a", "arrival_s": 0, "duration_s": 1, "devices": 2, "runs_on": ["x"], "priority": 1}
PLACES: tuple[tuple[str, tuple[str | int, ...]], ...] = (
    *(("philly", place) for place in (("jobid",), ("user",), ("submitted_time",), ("attempts",), ("attempts", 0))),
    *(("philly", ("attempts", 0, *rest)) for rest in (("start_time",), ("end_time",), ("detail",), ("detail", 0))),
    ("philly", ("attempts", 0, "detail", 0, "gpus")),
    *(("own", (name,)) for name in OWNED),
)
"""Values of a JSON trace: the format and the way there."""


@given(
    where=st.sampled_from(PLACES),
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-3, 10**18) | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    ),
    skip_bad=st.booleans(),
)
@example(where=("philly", ("attempts", 0, "detail", 0, "gpus")), value=5, skip_bad=True)
def test_a_value_of_another_type(
    tmp_path_factory: pytest.TempPathFactory, where: tuple[str, tuple[str | int, ...]], value: object, skip_bad: bool
):
    form, way = where
    entry: Any = json.loads(json.dumps(LOGGED if form == "philly" else OWNED))
    place = entry
    for step in way[:-1]:
        place = place[step]
    place[way[-1]] = value
    path = tmp_path_factory.mktemp("values") / "trace.json"
    path.write_text(json.dumps([entry]))
    assert tried(path, form=form, skip_bad=skip_bad) in (0, 1)
