"""The record of a tree: columns, differences, counts and the way, on documents and trees by hand."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest
from benchmarks.house.__main__ import BEFORE, lines, main
from benchmarks.house.answers import Questions, columns, differences, reworded
from benchmarks.house.counts import kernels, private_uses
from benchmarks.house.page import page
from benchmarks.house.rooms import House, told, way
from benchmarks.house.speeds import rows
from benchmarks.house.tree import Tree

HERE = {"commit": "a", "machine": {"processor": "p", "cores": 2, "load": 0.0}}


def answer(document: object) -> dict[str, object]:
    found, texts = columns(document)
    return {"code": 0, "columns": found, "texts": texts}


def test_an_added_key_is_no_difference_and_a_changed_or_missing_one_is():
    before = answer({"rows": [{"step_s": 0.1}, {"step_s": 0.2}], "planning_s": 3.0})
    assert before["columns"] == {"rows#": "2", "rows[].step_s": "0.1, 0.2"}
    assert differences(before, answer({"rows": [{"step_s": 0.1, "new": 1}, {"step_s": 0.2}]})) == []
    changed = answer({"rows": [{"step_s": 0.1}, {"step_s": 0.20000000000000001}, {"step_s": 0.3}]})
    assert differences(before, changed) == [
        "rows#: 2 before, 3 after",
        "rows[].step_s: 0.1, 0.2 before, 0.1, 0.2, 0.3 after",
    ]
    assert differences(before, answer({"rows": []})) == [
        "rows#: 2 before, 0 after",
        "rows[].step_s: 0.1, 0.2 before, missing after",
    ]


def test_long_columns_are_told_apart_in_the_last_digit():
    before, after = (answer([float(number) for number in range(40)] + [last]) for last in (0.1, 0.1 + 2**-56))
    assert len(differences(before, after)) == 1


def test_other_words_are_said_and_are_no_difference():
    before, after = answer({"sentence": "It takes .5 s."}), answer({"sentence": "It takes 0.5 s."})
    assert differences(before, after) == []
    assert len(reworded(before, after)) == 1


def test_numbers_in_text_are_compared_as_numbers():
    before = answer({"rows": [{"why": "1,024 GPUs, -3 %, .5 s"}]})
    assert before["columns"]["rows[].why (figures)"] == "[1024.0, -3.0, 0.5]"
    assert differences(before, answer({"rows": [{"why": "0.50 s with 1024 GPUs, -3 %"}]})) != []
    assert differences(before, answer({"rows": [{"why": "GPUs: 1024, -3 % in 0.50 s"}]})) == []


def test_one_text_among_values_hides_no_other_value():
    before = answer({"tried": [{"method": "zb-h1"}, {"method": "best order"}, {"method": 3}]})
    for method, number in (("gpipe", 3), ("zb-h1", 4)):
        after = answer({"tried": [{"method": method}, {"method": "best order"}, {"method": number}]})
        assert [line.partition(":")[0] for line in differences(before, after)] == ["tried[].method (figures)"]


def test_every_word_of_a_refusal_and_of_a_command_counts():
    for place in ("refused", "command"):
        before, after = answer({place: "needs more memory"}), answer({place: "needs other links"})
        assert len(differences(before, after)) == 1
        assert reworded(before, after) == []


def test_an_optional_key_keeps_its_row_and_an_emptied_mapping_is_seen():
    before = answer({"rows": [{"name": "x", "won": True}, {"name": "y"}], "found": {}})
    assert differences(before, answer({"rows": [{"name": "x"}, {"name": "y", "won": True}], "found": {}})) == [
        "rows[].won (rows): 0 before, 1 after"
    ]
    assert differences(before, answer({"rows": [{"name": "x", "won": True}, {"name": "y"}]})) == [
        "found{}: {} before, missing after"
    ]


def test_only_the_places_that_are_known_to_hold_clocks_are_left_out():
    clocks = {"planning_s": 1.0, "rows": [{"planning_s": 1.0}], "compare": [{"seconds": 1.0}]}
    assert answer(clocks)["columns"] == {"rows#": "1", "compare#": "1"}
    assert "rows[].seconds" in answer({"rows": [{"seconds": 3.0}]})["columns"]


def test_what_changed_on_purpose_is_asked_at_a_place_on_record_and_says_why():
    questions, kept = Questions.read(), json.loads(BEFORE.read_text())["answers"]["answers"]
    for name, places in questions.changed.items():
        assert set(places) <= {*kept[name], *kept[name]["columns"], *kept[name]["texts"]}
        assert all(len(why.split()) > 3 for why in places.values())
        told = [f"{place}: 1 before, 2 after" for place in places]
        assert questions.unexpected(name, [*told, "another: 1 before, 2 after"]) == ["another: 1 before, 2 after"]


def test_files_that_no_commit_holds_are_not_recorded(tmp_path: Path):
    (tmp_path / "src" / "hippo").mkdir(parents=True)
    (tmp_path / "results" / "house").mkdir(parents=True)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "src" / "hippo" / "a.py").write_text("")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "results" / "house" / "after.json").write_text("{}")
    assert not Tree(tmp_path, Path("python")).commit().endswith("+")
    (tmp_path / "src" / "hippo" / "b.py").write_text("")
    with pytest.raises(SystemExit, match="files differ from commit"):
        main(["record", "--tree", str(tmp_path), "--out", str(tmp_path / "a.json"), "--parts", "counts"])


def test_forty_plans_are_asked_with_one_to_eight_domains_and_every_answer_is_on_record():
    questions, kept = Questions.read(), json.loads(BEFORE.read_text())["answers"]["answers"]
    assert len(questions.plans) == 40
    assert {name[:2] for name in questions.plans} == {f"k{count}" for count in range(1, 9)}
    assert set(kept) == {*questions.plans, *questions.answers}
    assert set(questions.quick) <= set(kept)
    assert {name: answer["command"] for name, answer in kept.items()} == {
        name: " ".join(["hippo", *questions.words(name)]) for name in kept
    }


def test_the_files_that_questions_name_are_written(tmp_path: Path):
    questions = Questions.read()
    questions.lay(tmp_path)
    words = [word for name in (*questions.plans, *questions.answers) for word in questions.words(name)]
    named = {word for word in words if "/" in word and not word.startswith("plans/")}
    assert [name for name in named if not (tmp_path / name).exists()] == []
    lopsided = json.loads((tmp_path / "clusters" / "three-lopsided.json").read_text())
    assert [link["both"] for link in lopsided["links"]] == [False, False, False, False, True]


def test_kernels_are_found_behind_decorators_of_the_trees_own():
    one = ast.parse("import numba\n@numba.njit(cache=True)\ndef a(): ...\n@cache\ndef b(): ...\nc = numba.njit(b)\n")
    own = ast.parse("from numba import njit\ndef kernel(function):\n    return njit(cache=True)(function)\n")
    uses = ast.parse("@kernel\ndef d(): ...\n@kernel\ndef e(): ...\n")
    assert kernels([one, own, uses]) == 4


def test_a_private_function_counts_its_uses_in_its_file():
    tree = ast.parse("def _one(): ...\ndef _two(): _one()\ndef open(): _two(), _two()\n")
    assert list(private_uses(tree)) == [1, 2]


def test_a_way_counts_rooms_climbs_and_returns_by_where_functions_stood():
    """cli, then plan below it, then cost below that, back to plan: a climb and a return."""
    house = House(
        {"main": ["cli"], "think": ["plan"], "cost": ["cost"], "again": ["plan"]}, {"cli": 0, "plan": 1, "cost": 2}
    )
    calls = [("cli/main.py", "main"), ("new/all.py", "think"), ("new/all.py", "cost"), ("new/all.py", "again")]
    passed = way(house.of_calls(calls))
    assert passed == ["cli", "plan", "cost", "plan"]
    assert told(passed, house) == {"passed": 4, "climbs": 1, "returns": 1}


def test_a_new_function_belongs_to_the_room_that_its_file_came_from():
    house = House({"think": ["plan"]}, {"plan": 0})
    assert house.of_calls([("new/all.py", "think"), ("new/all.py", "fresh"), ("other/x.py", "fresh")]) == [
        "plan",
        "plan",
        "other",
    ]


def test_rows_of_tables_are_known_by_their_words():
    assert rows(["planner   CPU", "exact  1,024 GPUs   0.25 s", "exact  64 GPUs   .5 s"]) == {
        "exact GPUs s": [1024.0, 0.25],
        "exact GPUs s #2": [64.0, 0.5],
    }


def test_the_page_sets_both_beside_each_other_and_says_what_is_missing():
    plan = {"plan": "d1", "step_time_s": "1.5", "gap": "0.0", "lower_bound_s": "1.5", **answer({})}
    before = {"answers": {**HERE, "answers": {"k1": plan}}, "counts": {**HERE, "files of src": 644}, "rooms": {**HERE}}
    after = {"answers": {**HERE, "answers": {"k1": {**plan, "plan": "d2"}}}, "counts": {**HERE, "files of src": 322}}
    text = page(before, after)
    assert "- 0 of 1 plans are equal bit for bit" in text
    assert "- `k1`: plan: d1 before, d2 after" in text
    assert "| files of src | 644 | 322 | 0.50 |" in text
    assert "Not recorded after." in text


def test_of_tables_the_page_shows_the_rows_that_are_far_apart():
    read = (
        ["same us   1", "near us   10", "far us   100", "gone us   5"],
        ["same us   1", "near us   11", "far us   111"],
    )
    before, after = ({"tables": {**HERE, "tables": {"speeds": {"lines": each}}}} for each in read)
    text = page(before, after)
    assert "1 of 4 rows are equal, 2 more than 10 % apart:" in text
    assert "| far us | 100 | 111 |" in text
    assert "| gone us | 5 | not recorded |" in text
    assert "near" not in text


def test_a_record_has_a_line_for_each_answer():
    assert lines({"a": {"b": [1, 2], "c": {}}}, deep=2) == '{\n"a": {\n"b": [1, 2],\n"c": {}}}'


def test_what_is_no_checkout_and_what_is_no_record_is_refused(tmp_path: Path):
    with pytest.raises(SystemExit, match="no checkout of hippo"):
        main(["record", "--tree", str(tmp_path), "--out", str(tmp_path / "a.json"), "--parts", "counts"])
    with pytest.raises(SystemExit, match="no such record"):
        main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    with pytest.raises(SystemExit, match="no answer to nobody"):
        main(["check", "--only", "nobody"])


def test_the_start_of_a_tree_is_what_its_project_file_names(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nhippo = "somewhere.new:start"\n')
    start = Tree(tmp_path, Path("python")).start()
    assert start[0] == "python"
    assert "from somewhere.new import start as main" in start[2]
