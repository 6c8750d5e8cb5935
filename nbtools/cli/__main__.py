"""``python -m nbtools.cli`` is the command line for those who know the interpreter but not its scripts."""

from nbtools.cli import main

raise SystemExit(main())
