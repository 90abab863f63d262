"""Real traces of PyTorch's profiler, recorded here."""

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule


def record(path: Path, *, steps: int = 2, width: int = 512, rows: int = 2048) -> None:
    """A few training steps of a small network on the host."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.LayerNorm(4 * width),
        torch.nn.Linear(4 * width, width),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters())
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=steps),
        on_trace_ready=lambda found: found.export_chrome_trace(str(path)),
    ) as profiler:  # fmt: skip
        for _ in range(1 + steps):
            loss = model(torch.randn(rows, width)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
