"""Notice that a process is to end: by a signal, or because the one that started it is gone."""

import os
import signal
from dataclasses import dataclass, field
from multiprocessing import parent_process
from types import FrameType

import torch
import torch.distributed as dist

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@dataclass(slots=True)
class Notice:
    """Whether this process was told to end; all processes then end after the same step."""

    given: bool = False
    parent: int = field(default_factory=os.getppid)

    def listen(self) -> None:
        """Take signals as notice for the rest of this process, which was started for the run."""
        for each in SIGNALS:
            signal.signal(each, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.given = True

    def agreed(self, device: torch.device) -> bool:
        """Whether any process has notice, or is an orphan."""
        flag = torch.tensor(int(self.given or self.orphaned()), device=device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag)

    def orphaned(self) -> bool:
        """Whether the launcher is gone: torchrun is the parent, ours started the parent."""
        launcher = parent_process()
        return os.getppid() != self.parent or (launcher is not None and not launcher.is_alive())
