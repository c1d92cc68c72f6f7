"""``python -m atrio.runtime``: the same as the ``atrio`` command."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
