"""Tables and lines of an account."""

from collections.abc import Iterator, Mapping

from rich.table import Table

from trainwright.report.account import Account
from trainwright.report.drawing import render_devices
from trainwright.report.run_lines import run_lines, speed_line
from trainwright.report.tables import table
from trainwright.simulate.needs import Need
from trainwright.units import render_bytes, render_duration

# The phases of tasks, at the end of their labels, in words.
_PHASES: Mapping[str, str] = {
    "F": "forward",
    "N": "forward without gradient",
    "R": "recomputed",
    "I": "backward",
    "B": "backward",
    "W": "gradient of weights",
    "S": "once a step",
    "P": "before the first microbatch",
}
_NAMED = ("weights", "gradients", "optimizer", "activations")  # columns of memory
_SHOWN = 8  # of the critical path, of what holds most
_PLACES = 16  # of memory
_NEGLIGIBLE = 5e-4  # of the step


def title(account: Account) -> str:
    """The plan, and how large it is."""
    places = "one place" if account.places == 1 else f"{account.places} places"
    return (
        f"Plan {account.plan}: {account.devices} devices in {places}, {account.microbatches} microbatches, "
        f"{account.tasks:,} tasks"
    )


def account_lines(account: Account) -> Iterator[str]:
    """Speed and utilisation, what a run takes, the closed form beside them, whether it fits."""
    yield speed_line(account)
    yield from run_lines(account)
    fullest = account.memory[account.fullest]
    if account.closed_form:
        change = account.closed_form.step_s / account.step_s - 1.0
        yield (
            f"Closed form: {render_duration(account.closed_form.step_s)} ({change:+.1%}), "
            f"{render_bytes(account.closed_form.total_bytes)} on the fullest device "
            f"(simulated: {render_bytes(fullest.total_bytes)})"
        )
    fits = "It fits" if account.fits else "It does not fit"
    yield (
        f"{fits}: {render_bytes(fullest.total_bytes)} of {render_bytes(account.capacity_bytes)} on "
        f"{render_devices(fullest.devices)}"
    )


def time_table(account: Account) -> Table:
    """What each cause adds to the step, and how much of communication is hidden."""
    rows = []
    for name, spent in sorted(account.time_s.items(), key=lambda item: -item[1].busiest_s):
        seconds = (spent.busiest_s, spent.mean_s, spent.busiest_hidden_s, spent.mean_hidden_s)
        if max(seconds) > _NEGLIGIBLE * account.step_s:
            rows.append([name, *_share(seconds[0], account), _hidden(seconds[2]),
                         *_share(seconds[1], account), _hidden(seconds[3])])  # fmt: skip
    headers = ["part", "adds", "share", "hidden", "mean", "share", "hidden"]
    return table(f"Time of a step (busiest: {render_devices(account.busiest)}; and mean)", headers, rows)


def _share(seconds: float, account: Account) -> tuple[str, str]:
    return render_duration(seconds), f"{seconds / account.step_s:.1%}"


def _hidden(seconds: float) -> str:
    return render_duration(seconds) if seconds > 0 else ""


def memory_table(account: Account) -> Table:
    """What each place needs when it is fullest; of many places, the fullest."""
    chosen = sorted(account.memory, key=lambda each: -each.total_bytes)[:_PLACES]
    hosts = any(each.host_bytes for each in chosen)
    rows = [_memory_row(account, each, hosts=hosts) for each in account.memory if each in chosen]
    more = len(account.memory) - len(rows)
    room = f"GiB of {account.capacity_bytes / 2**30:.1f}"
    result = table(
        f"Memory when fullest, {room}" + (f" ({more} places more need no more)" if more else ""),
        ["devices", "stage", *_NAMED, "other", "total", "full", *(["on host"] if hosts else [])],
        rows,
        left=2,
    )
    result.columns[0].no_wrap = True
    return result


def _memory_row(account: Account, need: Need, *, hosts: bool) -> list[str]:
    """Of `other`: what the software itself takes, and the reserve for fragments."""
    named = [need.category_bytes[name] for name in _NAMED]
    sizes = [*named, need.total_bytes - sum(named), need.total_bytes]
    return [
        render_devices(need.devices).removeprefix("devices ").removeprefix("device "),
        ",".join(map(str, need.stages)),
        *(f"{size / 2**30:.1f}" for size in sizes),
        f"{need.total_bytes / account.capacity_bytes:.0%}",
        *([f"{need.host_bytes / 2**30:.1f}"] if hosts else []),
    ]


def tiers_table(account: Account) -> Table:
    """What the fullest places have in expanded tiers, and what a step moves to and from them."""
    names = ("weights", "gradients", "optimizer", "activations")
    chosen = sorted(account.memory, key=lambda each: -each.total_bytes)[:_PLACES]
    rows = [
        [
            render_devices(need.devices).removeprefix("devices ").removeprefix("device "),
            use.tier,
            *(f"{use.part_bytes[name] / 2**30:.1f}" for name in names),
            f"{use.total_bytes / 2**30:.1f}",
            f"{use.traffic_bytes / 2**30:.1f}",
        ]
        for need in account.memory
        if need in chosen
        for use in need.tiers
    ]
    spent = account.time_s["tiers"].busiest_s if "tiers" in account.time_s else 0.0
    title = f"In expanded memory, GiB (adds {render_duration(spent)} on the busiest place)"
    return table(title, ["devices", "tier", *names, "total", "moved a step"], rows, left=2)


def holdings_table(account: Account) -> Table:
    """What holds most on the fullest place at its peak."""
    fullest = account.memory[account.fullest]
    rows = [
        [render_label(each.label), each.category, f"{each.buffers:,}", render_bytes(each.held_bytes)]
        for each in account.holdings[:_SHOWN]
    ]
    where = f"{render_devices(fullest.devices)} at {render_duration(fullest.peak_s)}"
    return table(f"What holds most on {where}", ["made by", "as", "buffers", "bytes"], rows, left=2)


def traffic_table(account: Account) -> Table:
    """The collectives of a microbatch and of a step."""
    rows = [
        [
            each.kind.replace("_", "-"),
            each.cause,
            f"a {each.per}",
            f"{each.count:,}",
            render_bytes(each.sent_bytes),
        ]
        for each in account.traffic
    ]
    headers = ["collective", "for", "in", "count", "most sent by a device"]
    return table("Collectives", headers, rows, left=3)


def fallback_lines(account: Account) -> Iterator[str]:
    """Which tensors go without a collective."""
    for each in account.traffic:
        if each.names:
            named = ", ".join(each.names[:3]) + (f" and {each.count - 3} more" if each.count > 3 else "")
            yield f"No collective serves {named}: devices fetch what they lack, message by message."


def path_table(account: Account) -> Table:
    """The tasks of the critical path, those of all layers together."""
    rows = [
        [render_label(label), render_duration(seconds), f"{seconds / account.step_s:.1%}"]
        for label, seconds in list(account.path_s.items())[:_SHOWN]
    ]
    return table("Critical path", ["task", "takes", "share"], rows)


def path_line(account: Account) -> str:
    """The causes on the critical path."""
    shares = [(name, seconds / account.step_s) for name, seconds in account.path_cause_s.items()]
    named = [f"{name} {share:.1%}" for name, share in shares if share > _NEGLIGIBLE]
    return f"The path in all: {', '.join(named)}"


def free_table(account: Account) -> Table:
    """What each cause, or task, would save if it took no time."""
    rows = [
        [each.what if each.is_cause else render_label(each.what), render_duration(each.step_s),
         f"{each.gain_s / account.step_s:.1%}"]
        for each in account.free
        if each.gain_s > _NEGLIGIBLE * account.step_s
    ]  # fmt: skip
    return table("What if it took no time", ["", "step then", "saves"], rows)


def render_label(label: str) -> str:
    """The label of a task in words: `layer.3/ffn.up F` is `layer.3/ffn.up, forward`."""
    name, _, phase = label.rpartition(" ")
    if phase not in _PHASES or not name:
        return label
    words = [word.replace("_", "-") if word in _KINDS else word for word in name.split(" ")]
    if words[0].startswith("d:"):
        words[0] = f"gradient of {words[0].removeprefix('d:')}"
    return f"{' '.join(words)}, {_PHASES[phase]}"


_KINDS = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
