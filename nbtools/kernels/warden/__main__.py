"""Run the warden: ``python -m nbtools.kernels.warden FD FOLDER``."""

from __future__ import annotations

from nbtools.kernels.warden.process import serve

if __name__ == "__main__":
    serve()
