"""What is said of a program that breaks a rule."""

from trainwright.errors import BadInput
from trainwright.program.step import Step


def broken(step: Step, rule: str, device: int = -1) -> BadInput:
    """The error of a step: which operator, on which device (its first unless said), and the rule."""
    where = device if device >= 0 else step.mesh.devices[0]
    what = step.kind if step.kind != "compute" else "operator"
    return BadInput(
        f"program: {what} of phase {step.phase} on device {where}", step.name, rule,
        "lowering is at fault: report the plan",
    )  # fmt: skip
