"""Every case of closure, as the table of docs/closure.md."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.closure.arguments import find_invalid, has_list
from tests.closure.case import CLUSTERS, MODELS, TOP, ClosureResult, closure_cases, run_case, stack_names

_PAGE = Path(__file__).parents[2] / "docs" / "closure.md"


def main(words: Sequence[str] | None = None) -> int:
    """Run all cases, or those of some models or stacks; the exit code is 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help="only this model; repeatable")
    parser.add_argument("--stack", action="append", help="only this stack; repeatable")
    parser.add_argument("--out", type=Path, default=_PAGE, help="the page")
    options = parser.parse_args(words)
    results = []
    for case in closure_cases():
        if options.model and case.model not in options.model:
            continue
        if options.stack and case.stack not in options.stack:
            continue
        result = run_case(case, find_invalid)
        results.append(result)
        for failure in result.failures:
            print(failure, flush=True)
    options.out.write_text(render_page(results), encoding="utf-8")
    print(f"{options.out}: {len(results)} cases, {sum(len(each.failures) for each in results)} failures")
    return 1 if any(each.failures for each in results) else 0


def render_page(results: Sequence[ClosureResult]) -> str:
    """The page: counts by stack, and every failure in full."""
    lines = [
        "# Closure of plan, export and advise",
        "",
        f"Written by `make closure`: the best {TOP} plans of {len(MODELS)} catalog models on "
        f"{', '.join(CLUSTERS)} under every stack that can train the model, each exported to its own stack "
        "without `--lenient`, and read back by the reader behind `trainwright advise`. A plan is read back "
        "if strategy, global batch, sequence length, optimizer and gradient dtype are the same, and no note "
        "says that something was not considered, is refused or is predicted otherwise. Arguments are valid "
        "if the tool's own list has them, with that value; our own plan text has none.",
        "",
        "| stack | cases | no plan fits | plans | exported | valid arguments | read back |",
        "|---|---|---|---|---|---|---|",
    ]
    for stack in [*stack_names(), "all"]:
        own = [each for each in results if stack in ("all", each.case.stack)]
        if own:
            lines.append(f"| {stack} | " + " | ".join(_counts(own)) + " |")
    failures = [failure for each in results for failure in each.failures]
    lines += (
        ["", "## Failures", "", *(f"- {each}" for each in failures)] if failures else ["", "No failures."]
    )
    return "\n".join(lines) + "\n"


def _counts(results: Sequence[ClosureResult]) -> list[str]:
    """The numbers of a row; arguments of a tool without a list are not counted."""
    listed = any(has_list(each.case.capability.target) for each in results)
    names = ("plans", "exported", "valid", "read_back")
    sums = {name: f"{sum(getattr(each, name) for each in results):,}" for name in names}
    first = [f"{len(results):,}", f"{sum(not each.plans for each in results):,}"]
    return first + [sums[name] if listed or name != "valid" else "–" for name in names]


if __name__ == "__main__":
    sys.exit(main())
