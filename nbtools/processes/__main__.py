"""Run the warden: ``python -m nbtools.processes FD FOLDER``."""

from __future__ import annotations

from nbtools.processes.process import serve

if __name__ == "__main__":
    serve()
