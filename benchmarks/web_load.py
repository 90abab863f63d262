"""A server under load: fifty users who plan different models, beside one user of the same server.

Ratios to one user's median of the same run, in three situations: users who read a minute between questions
that nobody asked before; the same questions at one moment, which wait for a core; and all users without a
pause, over questions that were asked before. Memory of the server and its workers at the start, halfway and
at the end. Loopback only, and a bounded number of requests.
"""

import argparse
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

HEADERS = {"content-type": "application/json", "accept-encoding": "gzip"}
ANSWERS = (200, 409)  # a plan, or that none fits
_ALONE = 12  # questions of one user
_COUNTS = (64, 128, 256, 512, 1024, 2048)

Question = tuple[str, int]  # a model, and how many devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: how it ended, and how long it took."""

    status: int
    took_s: float


def main() -> None:
    """Start a server, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--requests", type=int, default=5_000, help="in all")
    parser.add_argument("--pause", type=float, default=60.0, help="seconds that a user reads")
    options = parser.parse_args()
    words = [sys.executable, "-m", "trainwright.cli.main", "serve", "--port", "0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        found = re.search(r"http://[^ ]+", server.stdout.readline())
        assert found
        began = time.perf_counter()
        measure(found[0], server.pid, options.users, options.requests, options.pause)
        print(f"all of it took {time.perf_counter() - began:.0f} s")
    finally:
        server.terminate()
        server.wait(30)


def measure(address: str, pid: int, users: int, requests: int, pause_s: float) -> None:
    """One user; users who read; users at one moment; users without a pause; memory."""
    questions = different(address)
    take = iter(questions)
    warm = [next(take) for _ in range(4)]
    at_once(address, [[each] for each in warm])  # every worker has answered once
    memory = {0: resident_mb(pid)}
    alone = [Client(address).ask(next(take)) for _ in range(_ALONE)]
    single_s = statistics.median(each.took_s for each in alone)
    print(f"one user, {_ALONE} questions: median {single_s:.2f} s")
    reading = at_once(address, [[next(take)] for _ in range(users)], within_s=pause_s)
    show(f"{users} users who read {pause_s:g} s between new questions", reading, single_s)
    moment = at_once(address, [[next(take)] for _ in range(users)])
    show(f"{users} users with a new question each at one moment", moment, single_s)
    known = questions[len(warm) : len(warm) + _ALONE + 2 * users]
    each_asks = (requests - len(warm) - _ALONE - 2 * users) // users
    turns = [random.Random(number).choices(known, k=each_asks) for number in range(users)]
    half = each_asks // 2
    for done, part in (
        (requests // 2, [each[:half] for each in turns]),
        (requests, [each[half:] for each in turns]),
    ):
        began = time.perf_counter()
        again = at_once(address, part)
        rate = len(again) / (time.perf_counter() - began)
        show(f"{users} users without a pause, known questions, {rate:.0f} a second", again, single_s)
        memory[done] = resident_mb(pid)
    told = ", ".join(f"after {count:,} requests {size:.0f} MB" for count, size in memory.items())
    print(f"memory of the server and its workers: {told}")


def different(address: str) -> list[Question]:
    """Models of the catalog in some order, each on another number of devices than its neighbours."""
    status, body = Client(address).send("GET", "/api/catalog")
    assert status == 200
    names = [each["name"] for each in json.loads(body)["models"] if not each["name"].startswith("dlrm")]
    random.Random(1).shuffle(names)
    return [(name, _COUNTS[place % len(_COUNTS)]) for place, name in enumerate(names)]


def at_once(address: str, turns: Sequence[Sequence[Question]], within_s: float = 0.0) -> list[Asked]:
    """What all users got: each asks its questions in turn, beginning at some moment of the time given."""
    results: list[Asked] = []

    def user(number: int) -> None:
        client = Client(address)
        time.sleep(within_s * number / len(turns))
        for question in turns[number]:
            results.append(client.ask(question))

    threads = [threading.Thread(target=user, args=(number,)) for number in range(len(turns))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return results


def show(title: str, asked: Sequence[Asked], single_s: float) -> None:
    """Median and the 95th of a hundred, as ratios to one user's median; and what was no answer."""
    times_s = sorted(each.took_s for each in asked)
    median_s, late_s = statistics.median(times_s), times_s[int(0.95 * (len(times_s) - 1))]
    bad = sorted({each.status for each in asked if each.status not in ANSWERS})
    print(f"{title}: {len(asked):,} requests, errors: {bad or 'none'}")
    for name, took_s in (("median", median_s), ("95 % within", late_s)):
        print(f"  {name} {took_s:.3f} s ({took_s / single_s:.2f}x)")


class Client:
    """A user with a connection that stays open, as a browser's does."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=300)

    def ask(self, question: Question) -> Asked:
        """A plan for a model on so many devices."""
        body = json.dumps({"model": question[0], "device": "h100", "count": question[1], "top": 10})
        began = time.perf_counter()
        status, _ = self.send("POST", "/api/plan", body)
        return Asked(status=status, took_s=time.perf_counter() - began)

    def send(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        headers = HEADERS if body else {}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()


def resident_mb(pid: int) -> float:
    """Resident memory of a process and its children (Linux)."""
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True
    )
    pages = [
        int(Path(f"/proc/{each}/statm").read_text().split()[1])
        for each in [str(pid), *children.stdout.split()]
    ]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
