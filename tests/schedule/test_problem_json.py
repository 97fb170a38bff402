"""Problem files: what is read, what is written again, and what is refused with file, key, value and remedy."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippo.errors import InputError
from hippo.schedule.problem import MicroBatchMemory, RankLink, ScheduleProblem
from hippo.schedule.problem_json import problems_of_text
from hippo.schedule.sizes import Sized

from .orders import problems

ONE = {"id": "a", "p": 3, "m": 4, "f": 1, "b": 1.05, "w": [0.5, 0.75, 1], "comm": [0.1, 5], "K": 2}


def read(document: object, **changes: object) -> Sized:
    return problems_of_text(json.dumps(document), source="q.json", changes=changes).problems[0]


def test_one_problem():
    sized = read(ONE)
    assert sized.ident == "a"
    assert sized.problem == ScheduleProblem(
        micro_batches=4,
        forward=(1.0,) * 3,
        backward=(1.05,) * 3,
        weight=(0.5, 0.75, 1.0),
        down=(RankLink(0.1), RankLink(5.0)),
        up=(RankLink(0.1), RankLink(5.0)),
        limit=(2.0,) * 3,
        name="a",
    )


def test_what_is_left_out_has_a_default():
    problem = read({"p": 2, "m": 1, "f": 1, "b": 1, "w": 1}).problem
    assert problem == ScheduleProblem.uniform(2, 1)


def test_extras():
    sized = read(
        ONE
        | {"transfer": 0.5, "comm_up": [0.2, 4], "transfer_up": [0, 1], "K": [2, None, 3.5], "id": 7}
        | {"memory": {"at_forward": 2, "at_backward": 0.5}, "placement": "looped", "chunks": 3, "layers": 9}
        | {"reduction": [0, 1.5, 2]}
    )
    problem = sized.problem
    assert sized.ident == 7
    assert problem.down == (RankLink(0.1, 0.5), RankLink(5.0, 0.5))
    assert problem.up == (RankLink(0.2, 0.0), RankLink(4.0, 1.0))
    assert problem.limit == (2.0, inf, 3.5)
    assert problem.memory == (MicroBatchMemory(2.0, 0.5),) * 3
    assert (problem.placement, problem.chunks) == ("looped", 3)
    assert problem.reduction == (0.0, 1.5, 2.0)
    assert read(ONE | {"reduction": 4}).problem.reduction == (4.0,) * 3


def test_times_that_depend_on_the_size():
    sized = read(ONE | {"f": {"fixed": 0.2, "per_sample": [1, 2, 3]}, "micro_batch_size": 4})
    assert sized.problem.forward == (4.2, 8.2, 12.2)
    assert (sized.size, sized.samples) == (4, 16)
    assert sized.fixed == ((0.2,) * 3, (0.0,) * 3, (0.0,) * 3)
    by_samples = {key: value for key, value in ONE.items() if key != "m"} | {"samples": 16, "micro_batch_size": 4}
    assert read(by_samples).problem.micro_batches == 4


def test_the_forms_of_a_file():
    lone = problems_of_text(json.dumps(ONE), source="q.json")
    listed = problems_of_text(json.dumps([ONE, ONE]), source="q.json")
    headed = problems_of_text(json.dumps({"header": {"what": "x"}, "problems": [ONE]}), source="q.json")
    assert (len(lone.problems), lone.listed) == (1, False)
    assert (len(listed.problems), listed.listed) == (2, True)
    assert (len(headed.problems), headed.listed) == (1, True)


def test_the_open_file(data):
    text = (data / "schedules_open.json").read_text()
    file = problems_of_text(text, source="open")
    published = json.loads(text)["problems"]
    assert [sized.ident for sized in file.problems] == [each["id"] for each in published]
    assert file.ignored == ()
    for sized, each in zip(file.problems, published, strict=True):
        assert [link.latency for link in sized.problem.down] == each["comm"]
        assert set(sized.problem.limit) == {inf if each["K"] is None else each["K"]}


def test_unknown_keys_are_named_and_passed_over():
    assert problems_of_text(json.dumps([ONE | {"remark": "x", "best_known": {}}]), source="q").ignored == ("remark",)


def test_changes_take_the_place_of_keys():
    assert read(ONE, K=7.0).problem.limit == (7.0,) * 3
    laid_out = read(ONE | {"placement": "looped", "chunks": 4}, placement="v").problem
    assert (laid_out.placement, laid_out.chunks) == ("v", 2)


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ({"p": 0}, "p", "0"),
        ({"p": 2.5}, "p", "2.5"),
        ({"p": True}, "p", "True"),
        ({"p": 10**9}, "p", "1000000000"),
        ({"m": 0}, "m", "0"),
        ({"m": -1}, "m", "-1"),
        ({"m": "4"}, "m", "'4'"),
        ({"m": None}, "m", "null"),
        ({"m": 10**12}, "m", "1000000000000"),
        ({"f": 0}, "f", "0"),
        ({"f": -1}, "f", "-1"),
        ({"f": "1 s"}, "f", "'1 s'"),
        ({"f": True}, "f", "True"),
        ({"f": 1e300}, "f", "1e+300"),
        ({"f": 10**400}, "f", "1000"),
        ({"f": [1, 1]}, "f", "[1, 1]"),
        ({"b": [1, 0, 1]}, "b[1]", "0"),
        ({"w": [1, None, 1]}, "w[1]", "null"),
        ({"f": {"fixed": 1}}, "f.per_sample", "missing"),
        ({"f": {"fixed": -1, "per_sample": 1}}, "f.fixed", "-1"),
        ({"f": {"a": 1}}, "f.a", "1"),
        ({"comm": [1]}, "comm", "[1]"),
        ({"comm": [1, -2]}, "comm[1]", "-2"),
        ({"comm": [1, 1e10]}, "comm", "10000000000.0"),
        ({"f": 1e-9}, "b", "1.05"),
        ({"comm": "none"}, "comm", "'none'"),
        ({"comm_up": [1, 2, 3]}, "comm_up", "[1, 2, 3]"),
        ({"transfer": -0.5}, "transfer", "-0.5"),
        ({"K": 0}, "K", "0"),
        ({"K": -4}, "K", "-4"),
        ({"K": False}, "K", "False"),
        ({"K": [1, 2]}, "K", "[1, 2]"),
        ({"memory": {"at_forward": 0}}, "memory.at_forward", "0"),
        ({"memory": {"at_forward": 1, "at_backward": 2}}, "memory.at_backward", "2"),
        ({"memory": [{"at_forward": 1}]}, "memory", "at_forward"),
        ({"memory": 3}, "memory", "3"),
        ({"reduction": [1, 2]}, "reduction", "[1, 2]"),
        ({"reduction": [1, 2, -3]}, "reduction[2]", "-3"),
        ({"reduction": 1e10}, "reduction", "10000000000.0"),
        ({"sync": 1}, "sync", "'reduction'"),
        ({"placement": "w"}, "placement", "w"),
        ({"placement": "v", "chunks": 3}, "chunks", "3"),
        ({"chunks": 2}, "chunks", "2"),
        ({"placement": "looped", "chunks": 2, "layers": 5}, "layers", "5"),
        ({"layers": 2}, "layers", "2"),
        ({"samples": 9, "micro_batch_size": 2}, "samples", "9"),
        ({"samples": 10, "micro_batch_size": 2}, "m", "4"),
        ({"id": [1]}, "id", "[1]"),
        ({"stages": 4}, "stages", "'p'"),
        ({"limit": 4}, "limit", "'K'"),
        ({"transfr": 4}, "transfr", "transfer"),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_what_is_wrong_is_named(change, key, value):
    with pytest.raises(InputError) as caught:
        read([ONE, ONE | change])
    message = str(caught.value)
    assert message.startswith(f"q.json: [1].{key}")
    assert value in message
    assert "To fix: " in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "holds no problem"),
        ('{"problems": []}', "problems: holds no problem"),
        ('{"problems": 3}', "problems: must be a list"),
        ("3", "must be a mapping"),
        ("[3]", "[0]: must be a mapping"),
        ("{}", "p: is missing"),
        ('{"p": 1, "p": 2}', "given twice"),
        ('{"p": NaN}', "NaN"),
        ('{"p": 1, "comm": [1e999]}', "comm[0]"),
    ],
)
def test_a_file_that_holds_no_problem(text, said):
    with pytest.raises(InputError, match="To fix: ") as caught:
        problems_of_text(text, source="q.json")
    assert str(caught.value).startswith("q.json")
    assert said in str(caught.value)


def problem_document(sized: Sized) -> dict[str, object]:
    """The document of a problem; reading it gives an equal one."""
    problem, size = sized.problem, sized.size
    document: dict[str, object] = {} if sized.ident is None else {"id": sized.ident}
    document |= {"p": problem.ranks, "m": problem.micro_batches}
    for index, key in enumerate("fbw"):
        times = list((problem.forward, problem.backward, problem.weight)[index])
        parts = list(sized.fixed[index]) if sized.fixed else []
        each = [(time - part) / size for time, part in zip(times, parts, strict=True)] if parts else []
        document[key] = {"fixed": parts, "per_sample": each} if parts else times
    document["comm"] = [link.latency for link in problem.down]
    document["K"] = [None if limit == inf else limit for limit in problem.limit]
    extras = {
        "transfer": [link.transfer for link in problem.down],
        "comm_up": [link.latency for link in problem.up],
        "transfer_up": [link.transfer for link in problem.up],
    }
    if any(extras["transfer"]) or problem.up != problem.down:
        document |= extras
    if problem.memory:
        document["memory"] = [
            {"at_forward": each.at_forward, "at_backward": each.at_backward} for each in problem.memory
        ]
    if problem.reduction:
        document["reduction"] = list(problem.reduction)
    if problem.placement != "plain":
        document |= {"placement": problem.placement, "chunks": problem.chunks}
    if size != 1:
        document["micro_batch_size"] = size
    return document


@settings(deadline=None)
@given(problems(), st.lists(st.none() | st.floats(1.0, 9.0), min_size=4, max_size=4), st.integers(1, 5))
def test_what_is_written_is_read(problem, limits, size):
    given_limits = tuple(inf if each is None else each for each in limits[: problem.ranks])
    sized = Sized(replace(problem, limit=given_limits), size)
    assert read(problem_document(sized)) == sized


def test_fixed_parts_are_written_and_read():
    sized = read(ONE | {"f": {"fixed": 0.25, "per_sample": 1}, "micro_batch_size": 2})
    assert read(problem_document(sized)) == sized


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*ONE, "memory", "transfer", "chunks", "placement", "samples", "layers"]), JSON))
def test_any_values_are_read_or_refused(changes):
    with suppress(InputError):
        for sized in problems_of_text(json.dumps([ONE | changes]), source="q.json").problems:
            assert sized.problem.tables.ranks == sized.problem.ranks
            assert sized.at(sized.samples).micro_batches == 1


@settings(deadline=None)
@given(st.text(alphabet='{}[]",:pmfbwK0123456789.e- ', max_size=60))
def test_any_text_is_read_or_refused(text):
    with suppress(InputError):
        assert problems_of_text(text, source="q.json").problems
