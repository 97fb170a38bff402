"""YAML as people write it: keys in the order given, texts of several lines as blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml


class _Blocks(yaml.SafeDumper):
    """Several lines are a block; nothing is an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always: equal parts are written out."""
        return True


def _text(dumper: _Blocks, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Blocks.add_representer(str, _text)


def yaml_text(documents: Sequence[dict[str, Any]]) -> str:
    """The documents as one file."""
    return str(yaml.dump_all(documents, Dumper=_Blocks, sort_keys=False, width=110, allow_unicode=True))
