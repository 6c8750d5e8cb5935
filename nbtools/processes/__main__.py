"""Run the warden: ``python -m nbtools.processes FD FOLDER``."""

from nbtools.processes.process import serve

if __name__ == "__main__":
    serve()
