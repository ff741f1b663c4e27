"""The explorer under load: ``python -m benchmarks.explorer_load [--clients 20] [--seconds 60]``.

Every client opens the page of deep linear networks over its websocket, as a browser does. When all have it, they drag
the slider of richness: bursts of positions, then a pause. A latency is the time from the last position of a burst to
the arrival of the very curve that belongs to it, which is known by its first test loss, ``1 + (D/N)/richness^2``.
Beside them are the server's memory over time, the processor time per drag of the server with its workers and of the
clients, which share the machine, and the time of one prediction alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import time
from typing import Any

import numpy as np
import psutil

from lazyrich.explorer.linear import DEFAULTS, NETWORK, TRAINING, curves_of, problem_of
from lazyrich.explorer.settings import Number
from lazyrich.provenance import provenance
from tests.explorer_client import PageClient, running_explorer

RICHNESS = next(s for s in TRAINING if s.name == "richness" and isinstance(s, Number))
WIDTH = next(s for s in NETWORK if s.name == "width" and isinstance(s, Number))
POSITIONS, APART, PAUSE, LONGEST = 6, 0.03, 0.3, 30.0


async def drag(page: PageClient, seed: int, end: float, latencies: list[float]) -> None:
    """One browser, until `end`; its latencies in seconds go into the list."""
    draw = random.Random(seed)
    slider, curves = page.find(title=RICHNESS.label), page.find(name="curves")
    width = WIDTH.at(20 + 4 * seed)  # everyone has a problem of their own
    await page.change(page.find(title=WIDTH.label), "value", WIDTH.position(width))
    position = page.models[slider]["value"]
    while time.monotonic() < end:
        for _ in range(POSITIONS):
            position = min(max(position + draw.choice([-3, -2, -1, 1, 2, 3]), 20), RICHNESS.positions)
            await page.change(slider, "value", position)
            await asyncio.sleep(APART)
        started = time.monotonic()
        wanted = 1 + DEFAULTS["dimension"] / width / RICHNESS.at(position) ** 2

        def there(wanted: float = wanted) -> bool:
            loss = page.models[curves]["data"]["test_loss"]
            return len(loss) > 0 and bool(np.isclose(loss[0], wanted, rtol=1e-9))

        while not there():
            await asyncio.wait_for(page.receive(), LONGEST)
        latencies.append(time.monotonic() - started)
        await asyncio.sleep(draw.uniform(0.5, 1.5) * PAUSE)
    page.socket.close()


async def drag_all(url: str, process: psutil.Process, clients: int, seconds: float) -> dict[str, Any]:
    """Seconds to open a page, latencies, errors, the server's memory in MiB at every second, processor times."""
    latencies: list[float] = []
    started = time.monotonic()
    pages = [await PageClient.open(url, "linear") for _ in range(clients)]
    opening = (time.monotonic() - started) / clients
    before = processor_seconds(process), time.process_time()
    end = time.monotonic() + seconds
    tasks = [asyncio.create_task(drag(page, seed, end, latencies)) for seed, page in enumerate(pages)]
    memory = []
    while not all(task.done() for task in tasks):
        memory.append(process.memory_info().rss / 2**20)
        await asyncio.sleep(1.0)
    return {
        "opening": opening,
        "latencies": latencies,
        "errors": [repr(task.exception()) for task in tasks if task.exception()],
        "memory": memory,
        "server": processor_seconds(process) - before[0],
        "clients": time.process_time() - before[1],
    }


def processor_seconds(process: psutil.Process) -> float:
    """Processor time of a process and those that it started."""
    return sum(sum(each.cpu_times()[:2]) for each in [process, *process.children(recursive=True)])


def redraw_alone(rounds: int = 20) -> float:
    """Median seconds of the prediction behind one redraw: T = 100, two blocks, defaults otherwise."""
    times = []
    for position in range(30, 30 + rounds):
        problem = problem_of(DEFAULTS | {"richness": RICHNESS.at(position)})
        started = time.perf_counter()
        curves_of(problem)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    report = {"versions": provenance(), "cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    report["redraw_seconds"] = redraw_alone()
    with running_explorer() as server:
        process = psutil.Process(server.process.pid)
        measured = asyncio.run(drag_all(server.url, process, options.clients, options.seconds))
        said = list(server.said)
    latencies, memory = measured["latencies"], measured["memory"]
    if not latencies:
        raise SystemExit("\n".join(["no curve arrived", *measured["errors"], *said]))
    settled = memory[len(memory) // 3 :]  # until then every page draws its first figures
    report |= {
        "clients": options.clients,
        "load_after": os.getloadavg()[0],
        "seconds_to_open": measured["opening"],
        "drags": len(latencies),
        "errors": measured["errors"],
        "server_said": said[-5:],
        "processor_seconds_per_drag": measured["server"] / len(latencies),
        "processor_seconds_per_drag_of_clients": measured["clients"] / len(latencies),
        "latency_median": float(np.median(latencies)),
        "latency_95": float(np.quantile(latencies, 0.95)),
        "memory_mib": [round(value) for value in settled[:: max(1, len(settled) // 8)]],
        "memory_growth_mib_per_minute": float(np.polyfit(np.arange(len(settled)), settled, 1)[0] * 60),
    }
    print(json.dumps(report, indent=1))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
