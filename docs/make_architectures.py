"""Runs the gradient equality suite and writes docs/architectures.md: what trains as on one process.

Verdicts are kept in report/architectures.jsonl as they come, with a fingerprint of the code, so that an
interrupted run continues. Exit code 1, and no page, if anything is wrong or crashes.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from tests.architectures.all_subjects import all_subjects  # noqa: E402
from tests.architectures.architecture_page import render_page  # noqa: E402
from tests.architectures.equality_case import (  # noqa: E402
    CRASH,
    WRONG,
    Verdict,
    build_reference,
    compare,
    plans_of,
)
from tests.architectures.forked import ProcessFailed, run_alone  # noqa: E402
from tests.architectures.subject import Subject  # noqa: E402

KEPT = ROOT / "report" / "architectures.jsonl"
PAGE = ROOT / "docs" / "architectures.md"
_TIMEOUT_S = 1800.0  # of one architecture under all plans


def main() -> int:
    """Compare what is not compared yet; the exit code."""
    options = _options()
    torch.set_num_threads(1)
    subjects = all_subjects()
    chosen = [subjects[name] for name in options.names or subjects]
    code = _fingerprint()
    kept = {} if options.again else _load(options.kept, code)
    options.kept.parent.mkdir(exist_ok=True)
    build_reference(subjects["towers"])  # so that forked processes need not import what tracing needs
    for number, subject in enumerate(chosen):
        missing = [plan for plan in plans_of(subject, options.plans) if (subject.name, plan) not in kept]
        if missing:
            verdicts = _verdicts(subject, missing)
            _save(options.kept, verdicts, code)
            kept |= {(each.name, each.plan): each for each in verdicts}
            _show(f"{number + 1}/{len(chosen)}", subject, verdicts)
    found = [kept[subject.name, plan] for subject in chosen for plan in plans_of(subject, options.plans)]
    bad = [each for each in found if each.result in (WRONG, CRASH)]
    if not bad and not options.names and not options.plans:
        PAGE.write_text(render_page(subjects, found), encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
    for each in bad:
        print(f"{each.result} {each.name} under {each.plan}: {each.detail[:200]}", file=sys.stderr)
    return 1 if bad else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="architectures (default: all, and the page is written)")
    parser.add_argument("--plan", dest="plans", action="append", default=[], help="only these plans")
    parser.add_argument("--again", action="store_true", help="compare again what was compared before")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where verdicts are kept")
    return parser.parse_args()


def _verdicts(subject: Subject, plans: Sequence[str]) -> list[Verdict]:
    try:
        verdicts: list[Verdict] = run_alone(lambda: compare(subject, plans), _TIMEOUT_S)
        return verdicts
    except ProcessFailed as error:
        return [
            Verdict(name=subject.name, plan=plan, result=CRASH, detail=error.text, trace=error.trace)
            for plan in plans
        ]


def _fingerprint() -> str:
    """A hash of all that verdicts depend on: what is compared, and what compares."""
    found = sha256()
    for folder in ("src/trainwright", "tests/architectures"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _load(path: Path, code: str) -> dict[tuple[str, str], Verdict]:
    """The verdicts on this very code."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    stored = [json.loads(line) for line in lines]
    listed = [Verdict(**each["verdict"]) for each in stored if each["code"] == code]
    return {(each.name, each.plan): each for each in listed}


def _save(path: Path, verdicts: Sequence[Verdict], code: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        for each in verdicts:
            file.write(json.dumps({"code": code, "verdict": each.stored()}) + "\n")


def _show(place: str, subject: Subject, verdicts: Sequence[Verdict]) -> None:
    counts: Mapping[str, int] = {
        result: sum(each.result == result for each in verdicts)
        for result in dict.fromkeys(each.result for each in verdicts)
    }
    listed = ", ".join(f"{count} {result}" for result, count in counts.items())
    print(f"{time.strftime('%H:%M:%S')}  {place:>7}  {subject.name:20} {listed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
