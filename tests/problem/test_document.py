"""JSON and YAML as plain values: strict, shallow, finite."""

from __future__ import annotations

import pytest

from hippo.errors import InputError
from hippo.problem.document import MAX_DEPTH, parse_json, parse_yaml


def test_yaml_follows_the_core_schema() -> None:
    text = """
# comment
words: [no, on, 'true', "1", ~x, 12:30, 0x10, 2024-01-01]
numbers: [1, -2, 1e3, .5, 6., +7, 1_000]
nothing: [~, null, ]
truth: [true, False]
text: |
  two
  lines
"""
    assert parse_yaml(text, "f") == {
        "words": ["no", "on", "true", "1", "~x", "12:30", "0x10", "2024-01-01"],
        "numbers": [1, -2, 1000.0, 0.5, 6.0, 7, "1_000"],
        "nothing": [None, None],
        "truth": [True, False],
        "text": "two\nlines\n",
    }
    assert parse_yaml("", "f") is None
    assert parse_yaml("a:\n- b:\n  - {c: [d, {e: f}]}\n", "f") == {"a": [{"b": [{"c": ["d", {"e": "f"}]}]}]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2", "f: line 2: key 'a' is given twice. To fix: keep one of them."),
        ("a: &x [1]\nb: *x", "f: line 1: anchors and aliases are not supported."),
        ("a: !!python/object:os.system x", "tag tag:yaml.org,2002:python/object:os.system is not supported"),
        ("a: 1\n---\nb: 2", "f: line 2: a second document starts here."),
        ("a: .nan", "f: a: NaN is not a finite number."),
        ("a: {b: [-.Inf]}", "f: a.b[0]: -Infinity is not a finite number."),
        ("a: 1e999", "f: a: Infinity is not a finite number."),
        ("a: [1, 2", "not valid YAML"),
        ("a: b: c", "f: line 1, column 5: not valid YAML: mapping values are not allowed"),
        ("? [1]\n: 2", "f: line 1: a key must be a word, not []"),
        ("1: 2", "f: line 1: a key must be a word, not 1"),
        ("a: \x01", "f: not valid YAML"),
        ("[" * 500 + "]" * 500, f"f: nested deeper than {MAX_DEPTH} levels."),
        ("- " * 50_000, f"f: nested deeper than {MAX_DEPTH} levels."),
    ],
)
def test_yaml_refusals_name_the_line(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "f")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "f: line 1, column 1: not valid JSON: Expecting value. To fix: give the whole file; it ends too early."),
        ('{"a": 1', "give the whole file; it ends too early"),
        ('{"a": "b', "give the whole file; it ends too early"),
        ('{"a": 1,}', "not valid JSON"),
        ('{"a": NaN}', "f: a: NaN is not a finite number. To fix: write a finite number."),
        ('{"a": -Infinity}', "f: a: -Infinity is not a finite number."),
        ('{"a": 1, "a": 2}', "f: key 'a' is given twice."),
        ("[" * 500 + "]" * 500, f"f: nested deeper than {MAX_DEPTH} levels."),
        ("[" * 100_000, f"f: nested deeper than {MAX_DEPTH} levels."),
        ('{"a": [1, {"b c": 1e999}]}', "f: a[1].b c: Infinity is not a finite number."),
        ("1" * 5000, "f: a number has thousands of digits."),
    ],
)
def test_json_refusals(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_json(text, "f")
    assert words in str(caught.value)
