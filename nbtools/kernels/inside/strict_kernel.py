"""A Python kernel in a separate process that confines itself: what a spawned kernel is when it has to be strict.

An ordinary ipykernel opens internet sockets while it starts, which a strict process may not, and it starts threads
that a confinement put on later would not bind. This one is made as a fork of the zygote is, without the zygote: first
the imports, then the confinement, then local sockets, then the lock. Run as a file, with the file of its orders.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

CHANNEL = 60
"""Descriptor of the memory channel."""
HANDOVER = 61
"""Descriptor over which the listener goes to the supervisor."""


def serve(orders: str) -> None:
    """Become the kernel that the file of orders describes, and serve until it is shut down."""
    # It is run as a file with -P, so that nothing of the working folder is imported; the package must be found still.
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from nbtools.kernels.inside import forked_kernel

    message = json.loads(Path(orders).read_text("utf-8"))
    message["confinement"]["handover"] = HANDOVER if message["confinement"]["supervised"] else None
    forked_kernel.build()
    forked_kernel.fail_once()
    forked_kernel.main(message, [CHANNEL], os.open(os.devnull, os.O_WRONLY))


if __name__ == "__main__":
    serve(sys.argv[1])
