"""``python -m hippo``: the same as the command ``hippo``."""

from __future__ import annotations

from hippo.cli.main import main

if __name__ == "__main__":
    main()
