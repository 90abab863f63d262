"""A server under load: fifty users who plan different models, beside one user of the same server.

Ratios of the same run: the median answer with fifty users to that with one, of all questions and of those
that nobody asked before; memory of the server and its workers after 1,000 and after 5,000 requests. Loopback
only, and a bounded number of requests.
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
from pathlib import Path
from urllib.parse import urlsplit

JSON = {"content-type": "application/json"}
_ALONE, _DIFFERENT = 20, 150  # questions of one user, and of all fifty together


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--requests", type=int, default=5_000)
    options = parser.parse_args()
    words = [sys.executable, "-m", "trainwright.cli.main", "serve", "--port", "0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        found = re.search(r"http://[^ ]+", server.stdout.readline())
        assert found
        measure(found[0], server.pid, options.users, options.requests)
    finally:
        server.terminate()
        server.wait(30)


def measure(address: str, pid: int, users: int, requests: int) -> None:
    """One user, then many, then memory."""
    names = [each["name"] for each in json.loads(ask(address, "GET", "/api/catalog")[1])["models"]]
    large = (2048, 1024, 512, 256, 128, 64)
    questions = [(name, count) for name in names for count in large]
    random.Random(1).shuffle(questions)
    one, questions = questions[:_ALONE], questions[_ALONE : _ALONE + _DIFFERENT]
    alone = [timed(address, question)[1] for question in one]
    results: list[tuple[bool, int, float]] = []
    seen: set[tuple[str, int]] = set()
    memory: dict[int, float] = {}
    lock = threading.Lock()

    def user(number: int) -> None:
        chosen = random.Random(number)
        for _ in range(requests // users):
            question = chosen.choice(questions)
            with lock:
                new = question not in seen
                seen.add(question)
            status, took_s = timed(address, question)
            with lock:
                results.append((new, status, took_s))
                if len(results) in (1_000, requests):
                    memory[len(results)] = resident_mb(pid)

    threads = [threading.Thread(target=user, args=(number,)) for number in range(users)]
    began = time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    took_s = time.perf_counter() - began
    single = statistics.median(alone)
    every = statistics.median(each[2] for each in results)
    fresh = statistics.median(each[2] for each in results if each[0])
    bad = sorted({each[1] for each in results if each[1] not in (200, 409)})
    print(f"one user: median {single:.2f} s over {len(one)} new questions")
    print(f"{users} users: {len(results):,} requests in {took_s:.0f} s, {len(seen)} different questions")
    print(
        f"  median of all {every:.3f} s ({every / single:.2f}x), "
        f"of new ones {fresh:.2f} s ({fresh / single:.1f}x)"
    )
    print(f"  statuses that are no answer: {bad or 'none'}")
    for count, megabytes in memory.items():
        print(f"  after {count:,} requests: {megabytes:.0f} MB in the server and its workers")


def timed(address: str, question: tuple[str, int]) -> tuple[int, float]:
    """The status of an answer and how long it took."""
    body = json.dumps({"model": question[0], "device": "h100", "count": question[1], "top": 10})
    began = time.perf_counter()
    status, _ = ask(address, "POST", "/api/plan", body)
    return status, time.perf_counter() - began


def ask(address: str, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    """One request on a connection of its own."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=300)
    try:
        connection.request(method, path, body, JSON)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


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
