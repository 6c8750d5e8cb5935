"""Boxes of ipywidgets with widgets of ours in them: what is saved of one is what is saved of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nbtools.widgets.live.live_widget import LiveWidget, bundle_of, has_kernel, publish


def _inside(box: Any) -> Iterator[LiveWidget]:
    for child in box.children:
        if isinstance(child, LiveWidget):
            yield child
        elif hasattr(child, "children"):
            yield from _inside(child)


def show_box(box: Any) -> None:
    """Show the view of a box, then the saved form of each widget of ours in it, which its own view hides.

    Raises
    ------
    NotImplementedError
        None of ours is in it, or no kernel is here: IPython goes on with what it does otherwise.
    """
    inside = list(dict.fromkeys(_inside(box)))
    if inside and has_kernel():
        publish(bundle_of(box._repr_mimebundle_()), inside)
    elif own := getattr(box, "_ipython_display_", None):  # it is asked for only where nobody is there for its type
        own()
    else:
        raise NotImplementedError
