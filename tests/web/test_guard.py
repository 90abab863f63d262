"""What the server refuses, and that it lives on."""

import gzip
import http.client
import json
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import pytest

JSON = {"content-type": "application/json"}


def ask(
    address: str,
    method: str,
    path: str,
    body: bytes | str | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes, dict[str, str]]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=500)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def error(address: str, body: bytes | str, path: str = "/api/plan") -> tuple[int, str]:
    status, text, _ = ask(address, "POST", path, body, JSON)
    return status, str(json.loads(text)["error"])


def alive(address: str) -> bool:
    return ask(address, "GET", "/api/catalog")[0] == 200


DEEP = '{"config":' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}"
BOMB = gzip.compress(b"0" * 50_000_000)


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"\xff\x00" * 400_000, (400, 422), ""),
        (DEEP, (400, 422), ""),
        (BOMB, (400, 422), ""),
        (
            '{"config":{"model_type":"llama","num_hidden_layers":-3,"hidden_size":64,"num_attention_heads":4,"vocab_size":9,"intermediate_size":9}}',
            (422,),
            "layers -3",
        ),
        ('{"config":{"model_type":"llama","num_hidden_layers":NaN,"hidden_size":64}}', (422,), ""),
        ('{"model":"gpt2","change":{"compute":NaN}}', (422,), "compute"),
        ('{"model":"gpt2","count":0}', (422,), "count"),
        ('{"model":"gpt2","extra":1}', (422,), "extra"),
        ('{"model":"/etc/passwd"}', (422,), "model"),
        ('{"model":"config.json"}', (422,), "catalog"),
        ('{"model":"no-such-model"}', (422,), "no such name"),
        ('{"model":"gpt2","device":"x.toml"}', (422,), "catalog"),
        ('{"model":"gpt2","fix":["--json=x"]}', (422,), "knob"),
        ('{"model":"llama3-405b","count":1}', (409,), ""),
        ('{"model":"dlrm-mlperf","seq":8}', (422,), "does not apply to a recommender"),
    ],
)
def test_a_bad_question_gets_a_clear_refusal(
    address: str, body: bytes | str, status: tuple[int, ...], told: str
) -> None:
    found, text = error(address, body)
    assert found in status
    assert told in text
    assert "/tmp" not in text
    assert alive(address)


def test_ten_megabytes_are_refused_before_they_are_read(address: str) -> None:
    status, text, _ = ask(address, "POST", "/api/plan", b"", {**JSON, "content-length": "10000000"})
    assert (status, "more than" in text.decode()) == (413, True)
    assert alive(address)


def test_what_is_asked_for_again_is_the_same_job_and_more_jobs_wait(address: str) -> None:
    def start(count: int) -> dict[str, str]:
        text = f'model = "llama3-405b"\ncluster = "h100:{count}"\n[[axis]]\nfield = "cluster.count"\n'
        body = json.dumps({"toml": f"{text}values = {list(range(count, count + 4096, 8))}\n"})
        return dict(json.loads(ask(address, "POST", "/api/sweep", body, JSON)[1]))

    def state(job: str) -> str:
        return str(json.loads(ask(address, "GET", f"/api/jobs/{job}")[1])["state"])

    jobs = [start(1024 * number)["job"] for number in (1, 2, 3)]
    assert start(1024)["job"] == jobs[0]
    while state(jobs[1]) == "waiting":
        time.sleep(0.1)
    assert [state(each) for each in jobs] == ["running", "running", "waiting"]  # two at a time
    assert ask(address, "GET", f"/api/jobs/{jobs[2]}/result")[0] == 409
    for each in reversed(jobs):
        assert json.loads(ask(address, "DELETE", f"/api/jobs/{each}")[1])["state"] == "cancelled"
    again = start(1024)["job"]
    assert again != jobs[0]  # what was cancelled is begun again
    ask(address, "DELETE", f"/api/jobs/{again}")


def test_an_answer_is_compressed_for_whoever_reads_that_and_is_kept(address: str) -> None:
    body = json.dumps({"model": "gpt2", "count": 8})
    plain = ask(address, "POST", "/api/plan", body, JSON)
    short = ask(address, "POST", "/api/plan", body, {**JSON, "accept-encoding": "gzip"})
    assert "content-encoding" not in plain[2]
    assert short[2]["content-encoding"] == "gzip"
    assert gzip.decompress(short[1]) == plain[1]
    mark = ask(address, "GET", "/static/app.js")[2]["etag"]
    again = ask(address, "GET", "/static/app.js", headers={"if-none-match": mark})
    assert (again[0], again[1]) == (304, b"")


def test_a_sweep_cannot_name_a_file(address: str) -> None:
    for text in ('model = "/etc/passwd"', 'model = "x/../y.toml"', 'model = "gpt2"\\ncluster = "a/b"'):
        body = json.dumps({"toml": text.replace("\\n", "\n")})
        status, started, _ = ask(address, "POST", "/api/sweep", body, JSON)
        assert status in (202, 503)
        if status == 202:
            job = json.loads(started)["job"]
            _, told, _ = ask(address, "GET", f"/api/jobs/{job}/events")
            assert "could be a file" in told.decode() or "no name of the catalog" in told.decode()


def test_other_names_methods_and_forms_are_refused(address: str) -> None:
    assert ask(address, "GET", "/", headers={"host": "evil.example"})[0] == 421  # DNS rebinding
    assert (
        ask(address, "POST", "/api/plan", "{}", {"content-type": "text/plain"})[0] == 415
    )  # forms of others
    assert ask(address, "PUT", "/api/plan", "{}", JSON)[0] == 405
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/app.py", "/nothing"):
        assert ask(address, "GET", path)[0] == 404


def test_every_answer_has_a_strict_policy(address: str) -> None:
    for path in ("/", "/api/catalog", "/static/app.js", "/nothing"):
        headers = ask(address, "GET", path)[2]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_an_address_that_others_reach_needs_a_token() -> None:
    words = [sys.executable, "-m", "trainwright.cli.main", "serve", "--host", "0.0.0.0"]
    ended = subprocess.run([*words], capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 1
    assert "--token" in ended.stderr
    ended = subprocess.run(
        [*words, "--token", "short"], capture_output=True, text=True, timeout=500, check=False
    )
    assert "is not 16 or more" in ended.stderr


def test_whoever_does_not_know_the_token_learns_nothing() -> None:
    from fastapi.testclient import TestClient

    from trainwright.web.app import build_app
    from trainwright.web.settings import Settings

    token = "a-secret-of-20-signs"
    client = TestClient(build_app(Settings(token=token)), base_url="http://other")  # not started: no workers
    assert client.get("/api/openapi.json").status_code == 401
    assert client.get("/api/openapi.json", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/api/openapi.json", headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert client.get(f"/api/openapi.json?token={token}").status_code == 200  # and keeps it as a cookie
    assert client.get("/api/openapi.json").status_code == 200


def test_fifty_users_at_a_time_are_answered(address: str) -> None:
    models = ["gpt2", "llama2-7b", "llama3-8b", "opt-13b", "gpt3-13b"]
    statuses: list[int] = []

    def user(number: int) -> None:
        for turn in range(3):
            body = {"model": models[(number + turn) % len(models)], "count": 8 << (number % 3), "top": 5}
            statuses.append(ask(address, "POST", "/api/plan", json.dumps(body), JSON)[0])

    users = [threading.Thread(target=user, args=(number,)) for number in range(50)]
    for each in users:
        each.start()
    for each in users:
        each.join(300)
    assert statuses == [200] * 150
