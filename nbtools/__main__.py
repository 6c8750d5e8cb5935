"""``python -m nbtools`` is the command line, for whoever knows the interpreter but not its scripts."""

from nbtools.cli import main

# A process that multiprocessing spawns imports this file too, under another name.
if __name__ == "__main__":
    raise SystemExit(main())
