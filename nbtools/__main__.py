"""The command line, as the script ``nbtools`` and as ``python -m nbtools``, for those who know no scripts."""

import os
import signal


def main() -> int:
    """Run the command line and return its exit code; Ctrl-C ends it with one line while it is being loaded, too."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not one that runs in the background
        signal.signal(signal.SIGINT, _leave)
    from nbtools.cli import main as run

    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()


def _leave(*_: object) -> None:
    os.write(2, b"stopped\n")
    os._exit(130)


# A process that multiprocessing spawns imports this file too, under another name.
if __name__ == "__main__":
    raise SystemExit(main())
