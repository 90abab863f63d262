"""Modules of users' own, and plain PyTorch loops over them on one device."""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import nn

from examples.gpt import Gpt
from trainwright.runtime.samples import Samples
from trainwright.runtime.tokens import load_tokens
from trainwright.runtime.trainer import Recipe

SEQ, STEPS, RATE = 16, 6, 1e-2  # of the runs that are compared

number = 3


def gpt() -> Gpt:
    """The example, smaller and without dropout: logits."""
    return Gpt(layers=2, hidden=32, heads=4, vocab=256, positions=32, dropout=0.0)


def dropping() -> Gpt:
    """The example with much dropout."""
    return Gpt(layers=2, hidden=32, heads=4, vocab=256, positions=32, dropout=0.5)


class Masked(nn.Module):
    """Attention written out with a mask that is kept, a buffer of whole numbers, and a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(256, 32), nn.Linear(32, 256)
        self.qkv = nn.Linear(32, 96)
        self.register_buffer("mask", torch.ones(32, 32).tril().bool())
        self.register_buffer("version", torch.tensor(7))

    def forward(self, idx: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, seq = self.embedding(idx), idx.shape[1]
        q, k, v = self.qkv(x).split(32, dim=-1)
        scores = (q @ k.transpose(-2, -1) / 32**0.5).masked_fill(~self.mask[:seq, :seq], float("-inf"))
        logits = self.head(x + scores.softmax(-1) @ v)
        return logits, F.cross_entropy(logits.view(-1, 256), targets.reshape(-1), ignore_index=-1)


def masked() -> Masked:
    """A module that takes the next tokens as targets and returns its loss beside its logits."""
    return Masked()


class Sorted(nn.Module):
    """Tokens of all samples in the order of a score: an operation that is kept whole, for its samples."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(256, 32), nn.Linear(32, 256)
        self.inner, self.score = nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, idx: torch.Tensor) -> torch.Tensor:
        x = self.embedding(idx)
        rows = x.flatten(0, 1)
        order = self.score(rows).squeeze(-1).argsort()
        made = torch.zeros_like(rows).index_put((order,), self.inner(rows[order]).relu())
        return self.head(x + made.view_as(x))  # type: ignore[no-any-return]


def sorting() -> Sorted:
    """A module with an operator that holds for one number of samples only."""
    return Sorted()


def llama() -> nn.Module:
    """Hugging Face's Llama, which compares with labels one place ahead."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config)


class Table(nn.Module):
    """A row of logits for each token; what is done with them may not be."""

    def __init__(self, rows: int = 256) -> None:
        super().__init__()
        self.rows = nn.Embedding(rows, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.rows(tokens)  # type: ignore[no-any-return]


class Pooled(Table):
    """One answer for all tokens."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens).mean(1)


class Branching(Table):
    """Does what the values say."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found = super().forward(tokens)
        return found if found.sum() > 0 else -found


class Counting(Table):
    """A frozen table with a trained layer after it, and a penalty divided by the number of samples."""

    def __init__(self) -> None:
        super().__init__()
        self.rows.requires_grad_(False)
        self.head = nn.Linear(256, 256)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        logits = self.head(super().forward(tokens))
        penalty = 1e-4 * logits.square().sum() / tokens.shape[0]
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1) + penalty


class Likelihood(Table):
    """A loss without cross_entropy."""

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return -super().forward(tokens).log_softmax(-1).gather(-1, labels.unsqueeze(-1)).mean()


class Behind(Table):
    """A loss that compares with the label before."""

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return F.cross_entropy(super().forward(tokens)[:, 1:].flatten(0, 1), labels[:, :-1].flatten())


def narrow() -> Table:
    """A table without a row for every token of the text."""
    return Table(rows=100)


def frozen() -> nn.Module:
    """A module that is not to be trained."""
    return Table().requires_grad_(False)


def raising() -> nn.Module:
    """A factory with a fault."""
    raise ValueError("no such size")


def nothing() -> None:
    """A factory that forgets to return."""


Loss = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]  # from tokens and the next ones
LOSSES: Mapping[str, Loss] = {
    "gpt": lambda module, tokens, after: F.cross_entropy(module(tokens).flatten(0, 1), after.flatten()),
    "sorting": lambda module, tokens, after: F.cross_entropy(module(tokens).flatten(0, 1), after.flatten()),
    "masked": lambda module, tokens, after: module(tokens, after)[1],
    "llama": lambda module, tokens, after: module(tokens, labels=tokens).loss,
    "Counting": lambda module, tokens, after: module(tokens, after),
}


def samples() -> Samples:
    """The data that a run has by default, in its order."""
    return Samples(tokens=load_tokens("built-in"), vocab=256, seq=SEQ, batch=8)


def build(name: str, seed: int = 0) -> nn.Module:
    """A module with the weights that a run of that seed begins with."""
    torch.manual_seed(seed)
    module: nn.Module = globals()[name]()
    return module


def plain_losses(name: str, module: nn.Module, steps: int = STEPS) -> list[float]:
    """The losses of a plain loop on one device, which trains the module."""
    recipe, data, found = Recipe(rate=RATE, steps=steps), samples(), []
    wide = [each for each in module.parameters() if each.dim() > 1]
    thin = [each for each in module.parameters() if each.dim() < 2]
    groups = [{"params": wide, "weight_decay": recipe.decay}, {"params": thin, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=recipe.betas, eps=recipe.epsilon)
    for step in range(steps):
        rows = torch.from_numpy(data.step(step))
        loss = LOSSES[name](module, rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), recipe.clip)
        for group in optimizer.param_groups:
            group["lr"] = RATE * recipe.share(step)
        optimizer.step()
        found.append(loss.item())
    return found
