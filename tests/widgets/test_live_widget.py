from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any, ClassVar

import ipywidgets

from nbtools.errors import InvalidArguments
from nbtools.widgets.live.live_widget import LiveWidget, ViewRequest


class _Sums(LiveWidget):
    lanes: ClassVar[dict[str, str]] = {"slow": "aside"}

    def __init__(self) -> None:
        super().__init__(title="sums")
        self.begun, self.let_go = threading.Event(), threading.Event()

    def answer_sum(self, asked: ViewRequest) -> int:
        return sum(asked.args["of"])

    def answer_slow(self, asked: ViewRequest) -> str:
        asked.report(0.5)
        with asked.interrupted_by(self.let_go.set):
            self.begun.set()
            self.let_go.wait(30)
        asked.check()
        return "done"

    def answer_wrong(self, asked: ViewRequest) -> None:
        raise InvalidArguments("that does not fit.", hint="Give a number.")

    def answer_broken(self, asked: ViewRequest) -> None:
        raise KeyError("x")


def test_a_request_is_answered_by_the_method_of_its_name(front_end: Any) -> None:
    view = front_end(_Sums())
    assert view.ask("sum", of=[1, 2, 3]) == 6


def test_where_no_front_end_is_a_widget_ends_with_its_name() -> None:
    widget = _Sums()
    box = ipywidgets.VBox([widget])
    ended = weakref.ref(widget), weakref.ref(widget.layout)
    box.close()
    del widget, box
    gc.collect()
    assert [each() for each in ended] == [None, None]


def test_every_exception_becomes_the_reply(front_end: Any) -> None:
    view = front_end(_Sums())
    told = view.reply(view.start("wrong"))["error"]
    assert told == {"message": "that does not fit.", "hint": "Give a number.", "stopped": False}
    assert "KeyError" in view.reply(view.start("broken"))["error"]["message"]
    assert "unheard" in view.reply(view.start("unheard"))["error"]["message"]


def test_a_slow_request_does_not_hold_up_those_of_another_lane(front_end: Any) -> None:
    widget = _Sums()
    view = front_end(widget)
    slow = view.start("slow")
    assert widget.begun.wait(30)
    assert view.ask("sum", of=[4]) == 4
    widget.let_go.set()
    assert view.reply(slow)["value"] == "done"
    assert view.wait_for(lambda message: message["t"] == "progress")["share"] == 0.5


def test_a_stopped_request_is_interrupted_and_says_so(front_end: Any) -> None:
    widget = _Sums()
    view = front_end(widget)
    slow, waiting = view.start("slow"), view.start("slow")
    assert widget.begun.wait(30)
    view.stop(waiting)
    view.stop(slow)
    assert view.reply(slow)["error"]["stopped"]
    assert view.reply(waiting)["error"]["stopped"], "what waited in the lane is not begun"


def test_the_kernels_interrupt_stops_what_is_asked_and_the_view_is_told(front_end: Any) -> None:
    widget = _Sums()
    view = front_end(widget)
    slow = view.start("slow")
    assert widget.begun.wait(30)
    LiveWidget.interrupt()
    told = view.reply(slow)["error"]
    assert "interrupt of the kernel" in told["message"]
    assert told["by_kernel"]
    assert view.ask("sum", of=[1]) == 1


def test_nothing_is_told_before_a_view_is_ready_and_a_late_one_gets_the_texts_whole(front_end: Any) -> None:
    widget = _Sums()
    view = front_end(widget)
    widget.tell("news", number=1)
    text = widget.text("log")
    text.write("before 🐘 ")
    text.flush()
    assert view.messages == []
    view.receive(t="ready")
    text.write("after")
    text.flush()
    widget.tell("news", number=2)
    pieces = [message for message in view.messages if message["t"] == "text"]
    assert "".join(piece["text"] for piece in pieces) == "before 🐘 after"
    assert [piece["offset"] for piece in pieces] == [0, 10], "offsets count as JavaScript does"
    assert [message["given"] for message in view.messages if message["t"] == "tell"] == [{"number": 2}]


def test_many_small_writes_become_few_messages_and_lose_nothing(front_end: Any) -> None:
    widget = _Sums()
    view = front_end(widget)
    view.receive(t="ready")
    text = widget.text("log")
    begun = time.monotonic()
    for number in range(5_000):
        text.write(f"{number} ")
    text.flush()
    seconds = time.monotonic() - begun
    whole = "".join(f"{number} " for number in range(5_000))
    pieces = [message["text"] for message in view.messages if message["t"] == "text"]
    assert "".join(pieces) == whole == str(text)
    assert len(pieces) <= seconds / 0.03 + 3


def test_the_plain_forms_stand_beside_the_view() -> None:
    bundle, _ = _Sums()._repr_mimebundle_()
    assert bundle == {"text/plain": "_Sums('sums')", "text/html": "<pre>_Sums(&#x27;sums&#x27;)</pre>"}
