"""The engines that the workflow benchmark compares: each runs a graph whose nodes do nothing but hand a number on.

A graph is a mapping from a node to the nodes that it needs, in an order in which it could be run. What a side returns
is the time of a whole run in milliseconds, divided by the number of nodes; graphs are built before the clock starts,
because a file is read once and run often.
"""

from __future__ import annotations

import contextlib
import operator
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

Graph = Mapping[str, Sequence[str]]
Side = Callable[[], float]


def chain(nodes: int) -> Graph:
    """Return nodes that each need the one before."""
    return {f"n{i}": [f"n{i - 1}"] if i else [] for i in range(nodes)}


def fan(nodes: int) -> Graph:
    """Return one node, all others but one beside each other behind it, and one that needs them all."""
    middle = [f"n{i}" for i in range(1, nodes - 1)]
    return {"n0": [], **{name: ["n0"] for name in middle}, f"n{nodes - 1}": middle}


def grid(nodes: int) -> Graph:
    """Return nodes in a square, each of which needs its neighbours above and on the left."""
    width = int(nodes**0.5)
    return {
        f"n{y * width + x}": [f"n{b * width + a}" for b, a in ((y - 1, x), (y, x - 1)) if a >= 0 and b >= 0]
        for y in range(width)
        for x in range(width)
    }


def work(*values: int) -> int:
    """Return one more than the largest of the numbers: what every node of every side does."""
    return max(values, default=0) + 1


def timed(run: Callable[[], object], nodes: int) -> Side:
    """Return a side that measures one run."""

    def measure() -> float:
        begun = time.perf_counter()
        run()
        return 1000 * (time.perf_counter() - begun) / nodes

    return measure


@contextlib.contextmanager
def langgraph(graph: Graph, folder: Path | None = None) -> Iterator[Side]:
    """LangGraph; with a folder each step is kept in SQLite before the next one starts."""
    from langgraph.graph import END, START, StateGraph
    from typing_extensions import TypedDict

    class State(TypedDict):
        values: Annotated[dict[str, int], operator.or_]

    builder: Any = StateGraph(State)
    for name, needs in graph.items():
        builder.add_node(name, _langgraph_node(name, needs))
        # A list waits for all of them, which is what a node that needs several means.
        builder.add_edge(list(needs) if needs else START, name)
    builder.add_edge(list(graph)[-1], END)
    config: dict[str, Any] = {"recursion_limit": 10 * len(graph)}
    with contextlib.ExitStack() as stack:
        if folder is None:
            app = builder.compile()
            yield timed(lambda: app.invoke({"values": {}}, config), len(graph))
            return
        from langgraph.checkpoint.sqlite import SqliteSaver

        connection = sqlite3.connect(folder / "langgraph.sqlite", check_same_thread=False)
        stack.callback(connection.close)
        app = builder.compile(checkpointer=SqliteSaver(connection))
        runs = iter(range(10**9))

        def run() -> None:
            thread = {"configurable": {"thread_id": f"t{next(runs)}"}}
            app.invoke({"values": {}}, config | thread, durability="sync")

        yield timed(run, len(graph))


def _langgraph_node(name: str, needs: Sequence[str]) -> Callable[[Any], Any]:
    return lambda state: {"values": {name: work(*(state["values"][n] for n in needs))}}


@contextlib.contextmanager
def dask(graph: Graph) -> Iterator[Side]:
    """Plain Dask: one future for each node on one worker process of this machine."""
    from distributed import Client, LocalCluster

    def node(*values: int) -> int:  # of its own, so that it goes to workers by value: they cannot import a benchmark
        return max(values, default=0) + 1

    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):

        def run() -> None:
            futures: dict[str, Any] = {}
            for name, needs in graph.items():
                futures[name] = client.submit(node, *(futures[n] for n in needs), pure=False)
            client.gather(list(futures.values()))

        yield timed(run, len(graph))


@contextlib.contextmanager
def dbos(graph: Graph, folder: Path) -> Iterator[Side]:
    """DBOS: each node is a step, kept in SQLite."""
    from dbos import DBOS

    os.environ.setdefault("DBOS__VMID", "benchmark")
    url = f"sqlite:///{folder / 'dbos.sqlite'}"
    app = DBOS(config={"name": "benchmark", "system_database_url": url, "log_level": "ERROR"})
    step = DBOS.step()(work)

    @DBOS.workflow()
    def walk() -> int:
        values: dict[str, int] = {}
        for name, needs in graph.items():
            values[name] = step(*(values[n] for n in needs))
        return values[name]

    DBOS.launch()
    try:
        yield timed(walk, len(graph))
    finally:
        app.destroy()
