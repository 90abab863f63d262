"""The application: pages, questions with answers, jobs with progress."""

import asyncio
import gzip
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from trainwright import __version__
from trainwright.api.fields import Request as ApiRequest
from trainwright.api.fields import render_command
from trainwright.api.plan_request import PlanRequest
from trainwright.api.requests import CompareRequest, SimulateRequest
from trainwright.api.study_requests import STUDY_REQUESTS
from trainwright.errors import TrainwrightError
from trainwright.report.page import ASSETS
from trainwright.study import STUDIES
from trainwright.web import questions as asked
from trainwright.web.answering import packed
from trainwright.web.guard import App, Guard
from trainwright.web.jobs import Job, Jobs
from trainwright.web.settings import Settings
from trainwright.web.workers import Busy, Question, TooLong, Workers

PAGES = ("plan", "timeline", "compare", *STUDIES, "sweep", "api")
_STATIC = Path(__file__).parent / "static"
_BUNDLES = {  # few files, so that few requests are made
    "app.js": (
        "text/javascript",
        (ASSETS / "charts.js", *(_STATIC / f"{name}.js" for name in ("islands", "recommenders", "app"))),
    ),
    "app.css": ("text/css", (ASSETS / "page.css", _STATIC / "app.css")),
    "echarts.min.js": ("text/javascript", (ASSETS / "echarts.min.js",)),
}
_TICKET = r"[A-Za-z0-9_-]{1,40}"
JobName = Annotated[str, Field(pattern=rf"^{_TICKET}$")]


class Problem(BaseModel):
    """What was wrong: thing, value, rule, remedy."""

    error: str


class Place(BaseModel):
    """Where a question is in the queue."""

    place: int = Field(ge=0, description="1 is next; 0 waits no longer")


class Started(BaseModel):
    """A job that is under way."""

    job: str
    command: str


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "not JSON", 401: "a token is needed", 404: "not there", 405: "no such method",
        408: "the body came too slowly",
        409: "nothing fits, or it is not done yet", 413: "the body is too large", 415: "not application/json",
        421: "asked under another name", 422: "a value breaks a rule", 503: "too busy, or it took too long",
    }.items()
}  # fmt: skip


def build_app(settings: Settings) -> App:
    """The application behind its guard."""
    return Guard(build_api(settings), settings)


def build_api(settings: Settings) -> FastAPI:
    """Routes and their documentation, without the guard."""
    workers, jobs = Workers(settings), Jobs(settings)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        workers.start()
        yield
        jobs.stop()
        workers.stop()

    api = FastAPI(
        title="Trainwright", version=__version__, lifespan=life, docs_url=None, redoc_url=None,
        openapi_url="/api/openapi.json", responses=_PROBLEMS,
        description="How to train this model on that cluster. Every answer is that of a command.",
    )  # fmt: skip
    _add_pages(api)
    _add_questions(api, workers)
    _add_jobs(api, jobs)
    _add_errors(api)
    return api


def _add_pages(api: FastAPI) -> None:
    for path in ("/", *(f"/{name}" for name in PAGES)):
        api.add_api_route(path, _page, methods=["GET"], include_in_schema=False)
    api.add_api_route("/static/{name}", _static, methods=["GET"], include_in_schema=False)


async def _page(request: Request) -> Response:
    return _file(request, "text/html", (_STATIC / "index.html",))


async def _static(request: Request, name: str) -> Response:
    if name not in _BUNDLES:
        raise HTTPException(404, "no such file")
    return _file(request, *_BUNDLES[name])


def _file(request: Request, media: str, paths: tuple[Path, ...]) -> Response:
    """Files as one, unless the browser has them as they are."""
    body, mark = _read(paths)
    headers = {"cache-control": "no-cache", "etag": mark}
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    return _sent(request, 200, body, media, headers)


@cache
def _read(paths: tuple[Path, ...]) -> tuple[bytes, str]:
    """Files as one, compressed once, and a mark that changes with them."""
    body = b"\n".join(path.read_bytes() for path in paths)
    return packed(body), f'"{hashlib.sha256(body).hexdigest()[:20]}"'


def _sent(
    request: Request, status: int, body: bytes, media: str, headers: dict[str, str] | None = None
) -> Response:
    """A compressed body as it is, to whoever can read that."""
    told = {"vary": "accept-encoding", **(headers or {})}
    if "gzip" in request.headers.get("accept-encoding", ""):
        told["content-encoding"] = "gzip"
    else:
        body = gzip.decompress(body)
    return Response(body, status_code=status, media_type=media, headers=told)


async def _answered(request: Request, workers: Workers, question: Question) -> Response:
    """The answer; of a question whose asker leaves before it, nothing."""
    answer = asyncio.ensure_future(workers.ask(question, _ticket(request)))
    left = asyncio.ensure_future(_leaves(request))
    try:
        await asyncio.wait((answer, left), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            return Response(status_code=499)  # nobody reads it
        status, body = answer.result()
        return _sent(request, status, body, "application/json")
    finally:
        answer.cancel()
        left.cancel()


def _ticket(request: Request) -> str:
    """The name under which the client asks for the place of its question in the queue; empty without one."""
    ticket = request.headers.get("x-ticket", "")
    if ticket and not re.fullmatch(_TICKET, ticket):
        rule = "is not 1 to 40 letters, digits, _ and -"
        raise HTTPException(422, f'header x-ticket "{ticket[:80]}": {rule}; choose another')
    return ticket


async def _leaves(request: Request) -> None:
    """Return when whoever asks has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


_QUESTIONS: Mapping[str, tuple[type[asked.Subject], type[ApiRequest], str]] = {
    "plan": (
        asked.Plan, PlanRequest, "The best strategies, with time, memory, cost, power and what limits them",
    ),
    "simulate": (
        asked.Simulate, SimulateRequest, "One plan in detail: its step, lane by lane, and its memory",
    ),
    "trace": (asked.TracedStep, SimulateRequest, "The simulated step as a trace that Perfetto opens"),
}  # fmt: skip


def _add_questions(api: FastAPI, workers: Workers) -> None:
    for kind, (body, request_type, summary) in _QUESTIONS.items():
        api.add_api_route(
            f"/api/{kind}", _endpoint(workers, kind, body, request_type), methods=["POST"], summary=summary
        )

    @api.post("/api/compare", summary="A predicted and a measured trace side by side")
    async def compare(request: Request, question: asked.Compare) -> Response:
        stated = CompareRequest(question.predicted, question.measured)
        return await _answered(request, workers, ("compare", stated))

    @api.get(
        "/api/waiting/{ticket}", summary="The place in the queue of a question asked with header x-ticket"
    )
    async def waiting(ticket: JobName) -> Place:
        return Place(place=workers.place(ticket))

    @api.get("/api/catalog", summary="Models, devices, networks, stacks and studies that are known")
    async def catalog(request: Request) -> Response:
        return await _answered(request, workers, ("catalog", None))


def _endpoint(
    workers: Workers, kind: str, body: type[asked.Subject], request_type: type[ApiRequest]
) -> Callable[..., Awaitable[Response]]:
    """The function that answers a kind of question, whose body has the fields of a request."""

    async def ask(request: Request, question: Any) -> Response:
        return await _answered(request, workers, (kind, question.build(request_type)))

    ask.__annotations__["question"] = body
    ask.__name__ = kind
    return ask


def _add_jobs(api: FastAPI, jobs: Jobs) -> None:
    def job_of(name: str) -> Job:
        job = jobs.find(name)
        if job is None:
            raise HTTPException(404, f'job "{name[:40]}": not known here; start it again')
        return job

    @api.post("/api/sweep", status_code=202, summary="Explore a design space; a job")
    async def sweep(question: asked.Sweep) -> Started:
        job = jobs.start("sweep", [question.toml], "trainwright sweep sweep.toml --out sweep")
        return Started(job=job.name, command=job.command)

    @api.post("/api/study/{name}", status_code=202, summary="Run a study; a job")
    async def study(name: JobName, question: asked.Study) -> Started:
        if name not in STUDIES:
            raise HTTPException(404, f'study "{name}": no such name; known: {", ".join(STUDIES)}')
        stated = question.build(STUDY_REQUESTS[name])
        job = jobs.start("study", [stated], render_command(f"study {name}", stated))
        return Started(job=job.name, command=job.command)

    @api.get("/api/jobs/{name}", summary="How far a job is")
    async def status(name: JobName) -> Response:
        return JSONResponse(job_of(name).status())

    @api.get("/api/jobs/{name}/events", summary="How far a job is, as server-sent events")
    async def events(name: JobName) -> Response:
        return StreamingResponse(jobs.events(job_of(name)), media_type="text/event-stream")

    @api.get("/api/jobs/{name}/result", summary="What a job that is done has found")
    async def result(request: Request, name: JobName) -> Response:
        job = job_of(name)
        if job.state != "done":
            raise HTTPException(409, f'job "{name}": is {job.state}; {job.error or "wait for it"}')
        return _sent(request, 200, job.result, "application/json")

    @api.delete("/api/jobs/{name}", summary="Cancel a job")
    async def cancel(name: JobName) -> Response:
        job = job_of(name)
        jobs.cancel(job)
        return JSONResponse(job.status())


def _add_errors(api: FastAPI) -> None:
    """Every problem has the same form."""

    @api.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"][1:])[:80]
        text = _form(first) or str(first["msg"]).removeprefix("Value error, ")
        return JSONResponse({"error": f"{where or 'question'}: {text}"[:400]}, status_code=422)

    @api.exception_handler(TrainwrightError)
    async def bad(_: Request, error: TrainwrightError) -> Response:
        return JSONResponse({"error": str(error)}, status_code=422)

    @api.exception_handler(HTTPException)
    async def told(_: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": str(error.detail)}, status_code=error.status_code)

    @api.exception_handler(Busy)
    async def busy(_: Request, __: Busy) -> Response:
        text = "as many questions or jobs as may be are under way; ask again soon"
        return JSONResponse({"error": text}, status_code=503, headers={"retry-after": "2"})

    @api.exception_handler(TooLong)
    async def too_long(_: Request, __: TooLong) -> Response:
        text = "it took longer than a question may; ask for less, or use the command line"
        return JSONResponse({"error": text}, status_code=503)


def _form(error: Mapping[str, Any]) -> str:
    """What is wrong with a value that is not written as its field must be; nothing for another error."""
    if error["type"] != "string_pattern_mismatch" or len(error["loc"]) < 2:
        return ""
    like = asked.WRITTEN_LIKE.get(str(error["loc"][1]), "")
    remedy = f"write it like {like}" if like else "use letters, digits and . _ + -"
    return f'"{str(error["input"])[:80]}" is not written as it must be; {remedy}'
