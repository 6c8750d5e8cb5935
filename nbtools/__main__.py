"""``python -m nbtools`` is the command line, for whoever knows the interpreter but not its scripts."""

from nbtools.cli import main

raise SystemExit(main())
