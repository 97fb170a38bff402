"""``hippo bench``: finds the scripts, runs one, passes its failure on, and says plainly when they are not there."""

from __future__ import annotations

import pytest

from hippo.cli import bench


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    (tmp_path / "good.py").write_text('"""Two and two.\n\nMore."""\nprint(2 + 2)\n')
    (tmp_path / "bad.py").write_text('"""Fails."""\nraise SystemExit("no figures")\n')
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    return tmp_path


def test_one_table(hippo, scripts):
    assert hippo("bench", "good").code == 0
    assert hippo("bench", "good", "--json").document == {"good": {"about": "Two and two.", "table": ["4"]}}


def test_scripts_find_each_other_by_the_name_of_their_folder(hippo, scripts):
    (scripts / "third.py").write_text(
        f'"""Both."""\nfrom {scripts.name}.good import __doc__ as told\nprint(told[:3])\n'
    )
    assert hippo("bench", "third", "--json").document["third"]["table"] == ["4", "Two"]


def test_a_table_that_fails(hippo, scripts):
    answer = hippo("bench", "bad", "--json")
    assert answer.code == 1
    assert answer.out == ""
    assert "bad.py" in answer.err


def test_one_that_fails_does_not_keep_the_others_from_being_printed(hippo, scripts, monkeypatch):
    asked: list[str] = []
    real = bench._run
    monkeypatch.setattr(bench, "_run", lambda path, **options: asked.append(path.stem) or real(path, **options))
    answer = hippo("bench")
    assert (answer.code, asked) == (1, ["bad", "good"])
    assert "bad.py ended with exit code 1" in answer.err
    assert [line for line in answer.out.splitlines() if line] == ["== bad: Fails.", "== good: Two and two."]


def test_the_list(hippo, scripts):
    assert hippo("bench", "--list", "--json").document == {"good": "Two and two.", "bad": "Fails."}
    assert "good" in hippo("bench", "--list").out


def test_an_unknown_table(refused, scripts):
    assert "did you mean 'good'" in refused("bench", "goods")


def test_without_a_source_tree(refused, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "FOLDER", tmp_path / "benchmarks")
    assert "source tree" in refused("bench")


def test_the_tables_of_this_tree_say_what_they_measure():
    assert bench.scripts()
    assert all(bench.about(path) for path in bench.scripts().values())
