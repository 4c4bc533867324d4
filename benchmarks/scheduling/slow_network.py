"""Worker processes of this machine with a slower network between them: a proxy that delays and limits.

It stands in for `tc netem` between machines, which needs a module of the kernel. Every byte that reaches a
worker, and every answer of one, passes through a process that hands it on when it would have arrived: after
the link of that worker was free, the bytes have passed at its bandwidth, and a latency. Messages between a
worker and the scheduler do not pass through it.
"""

import argparse
import asyncio
import contextlib
import math
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ...errors import StradaskError

_PIECE, _WAITING = 2**16, 64  # bytes that are handed on together, and such pieces that a connection holds
_TICKS = os.sysconf("SC_CLK_TCK")


class Link:
    """One direction of a worker's link: says when bytes that come now have passed.

    Examples
    --------
    >>> from stradask.benchmarks.scheduling.slow_network import Link
    >>> link = Link(latency=0.001, bandwidth=1e6)
    >>> [round(link.due(*sent), 6) for sent in ((5.0, 1000), (5.0, 1000), (9.0, 0))]
    [5.002, 5.003, 9.001]
    """

    def __init__(self, latency, bandwidth):
        self._latency, self._bandwidth, self._free = latency, bandwidth, 0.0

    def due(self, now, n_bytes):
        """Return when `n_bytes` that are sent now have arrived."""
        self._free = max(now, self._free) + n_bytes / self._bandwidth
        return self._free + self._latency


async def _forward(reader, writer, link):
    """Hand on what is read, each piece when it is due."""
    clock = asyncio.get_running_loop().time
    waiting: asyncio.Queue = asyncio.Queue(_WAITING)

    async def write():
        while (next_one := await waiting.get()) is not None:
            due, piece = next_one
            await asyncio.sleep(max(due - clock(), 0.0))
            writer.write(piece)
            await writer.drain()
        writer.close()

    writing = asyncio.ensure_future(write())
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            await waiting.put((link.due(clock(), len(piece)), piece))
    await waiting.put(None)
    with contextlib.suppress(OSError):
        await writing


async def _serve(latency, bandwidth, ports):
    """Listen on the first port of each pair for what listens on the second one."""
    both: list = []

    def handler(inner):
        to, back = Link(latency, bandwidth), Link(latency, bandwidth)

        async def handle(reader, writer):
            there = await asyncio.open_connection("127.0.0.1", inner)
            for one in (writer, there[1]):
                one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.gather(_forward(reader, there[1], to), _forward(there[0], writer, back))

        return handle

    for outer, inner in ports:
        both.append(await asyncio.start_server(handler(inner), "127.0.0.1", outer))
    print("ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in both))


@dataclass
class Processes:
    """A cluster of processes: the scheduler's file, and the process ids of workers, in order, and proxies."""

    scheduler_file: Path
    workers: list[int]
    proxies: list[int]

    def cpu_seconds(self):
        """Return the CPU seconds so far of all workers, and of the proxy."""
        return [sum(map(cpu_seconds, processes)) for processes in (self.workers, self.proxies)]


def cpu_seconds(pid):
    """Return the CPU seconds of a process so far, by ``/proc``."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found


@contextlib.contextmanager
def cluster(n_workers, latency=0.0, bandwidth=math.inf):
    """Start a scheduler and workers of one thread as processes.

    Parameters
    ----------
    n_workers : int
    latency : float, default=0.0
        Seconds one way, on top of this machine's own. With neither there is no proxy.
    bandwidth : float, default=inf
        Bytes a second of each worker's link, each way.

    Yields
    ------
    Processes
    """
    slow = latency > 0 or math.isfinite(bandwidth)
    ports = _free_ports(2 * n_workers)
    pairs = list(zip(ports[:n_workers], ports[n_workers:], strict=True))
    started: list[subprocess.Popen] = []

    def start(*command, stdout=subprocess.DEVNULL):
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        options = {"stdout": stdout, "stderr": subprocess.DEVNULL, "cwd": folder, "env": environment}
        started.append(subprocess.Popen([sys.executable, "-m", *map(str, command)], text=True, **options))
        return started[-1]

    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "scheduler.json")
        try:
            if slow:
                numbers = [number for pair in pairs for number in pair]
                proxy = start(__spec__.name, latency, bandwidth, *numbers, stdout=subprocess.PIPE)
                assert proxy.stdout.readline() == "ready\n"
            options = "--no-dashboard --host 127.0.0.1 --port 0 --scheduler-file"
            scheduler = start("dask", "scheduler", *options.split(), found)
            while not found.exists():
                if scheduler.poll() is not None:
                    raise StradaskError(f"the Dask scheduler ended with status {scheduler.returncode}")
                time.sleep(0.05)
            workers = []
            for outer, inner in pairs:
                place = ["--listen-address", f"tcp://127.0.0.1:{inner}"]
                place += ["--contact-address", f"tcp://127.0.0.1:{outer}"] if slow else []
                options = "--nthreads 1 --no-nanny --no-dashboard --memory-limit 0 --scheduler-file"
                workers.append(start("dask", "worker", *options.split(), found, *place).pid)
            yield Processes(found, workers, [started[0].pid] if slow else [])
        finally:
            for process in reversed(started):
                process.kill()
                process.wait()


def main(args=None):
    """Run the proxy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("latency", type=float, help="seconds")
    parser.add_argument("bandwidth", type=float, help="bytes a second, or inf")
    parser.add_argument("ports", type=int, nargs="+", help="pairs: where to listen, and whom for")
    wanted = parser.parse_args(args)
    pairs = list(zip(wanted.ports[::2], wanted.ports[1::2], strict=True))
    # `select` waits for microseconds, `epoll` for whole milliseconds.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(_serve(wanted.latency, wanted.bandwidth, pairs))


if __name__ == "__main__":
    main()
