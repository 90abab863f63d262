"""Attention whose keys come block by block equals attention to all of them."""

import pytest

torch = pytest.importorskip("torch")

from trainwright.runtime.kernels import meeting  # noqa: E402
from trainwright.runtime.kernels.meeting import Online, back_meet, scores_of  # noqa: E402


def _causal(low: int, high: int, window: int) -> "torch.Tensor":
    late = torch.arange(8)[:, None] - torch.arange(low, high)[None, :]
    return (late >= 0) & (late < window)


@pytest.mark.parametrize("window", [8, 3])
@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("tile", [1 << 22, 40])
def test_blocks_of_keys_make_up_all_of_them(
    window: int, drops: bool, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "_TILE", tile)
    random = torch.Generator().manual_seed(1)
    query, key, value = (
        torch.randn(2, 3, 8, width, generator=random, requires_grad=True) for width in (4, 4, 5)
    )
    weights = torch.rand(2, 3, 8, 8, generator=random) if drops else torch.ones(2, 3, 8, 8)
    gradient = torch.randn(2, 3, 8, 5, generator=random)
    whole = (scores_of(query, key, attn_mask=_causal(0, 8, window)).softmax(-1) * weights) @ value
    wanted = torch.autograd.grad(whole, (query, key, value), gradient)

    online, spans = Online(), ((5, 8), (0, 3), (3, 5))  # in any order; the first query sees none of the first
    for low, high in spans:
        counted = weights[..., low:high] if drops else None
        with torch.no_grad():
            online.meet(
                query, key[:, :, low:high], value[:, :, low:high], weights=counted,
                attn_mask=_causal(low, high, window),
            )  # fmt: skip
    torch.testing.assert_close(online.mean, whole.detach(), rtol=1e-5, atol=1e-6)

    found = [torch.zeros_like(each) for each in wanted]
    meet = back_meet(online.mean, online.level)
    for low, high in spans:
        parts = [key[:, :, low:high], value[:, :, low:high]]
        counted = weights[..., low:high] if drops else None
        made = meet(query, *parts, weights=counted, attn_mask=_causal(low, high, window))
        to_query, to_key, to_value = torch.autograd.grad(made, (query, *parts), gradient)
        found[0] += to_query
        found[1][:, :, low:high] += to_key
        found[2][:, :, low:high] += to_value
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
