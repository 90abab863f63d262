"""How a server is set up: where it listens, who may ask, and how much."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a user can set, and the limits that protect the machine."""

    host: str = "127.0.0.1"
    port: int = 8321
    token: str = ""  # none: only this machine may ask
    workers: int = 2  # processes that answer
    most_body_bytes: int = 2_000_000
    most_trace_bytes: int = 16_000_000  # of two traces that are compared
    body_s: float = 10.0  # to send a body in
    answer_s: float = 60.0  # of a processor, to answer a question in
    most_waiting: int = 128  # questions at a time
    most_jobs: int = 2  # at a time
    most_jobs_waiting: int = 16  # or running
    job_s: float = 1800.0
    most_kept: int = 64  # jobs whose results are kept
    most_kept_bytes: int = 64_000_000  # of these results
    cache_bytes: int = 64_000_000  # of answers that are kept
