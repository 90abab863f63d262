"""The own modules of the equality suite, by name."""

from collections.abc import Callable

import torch
from torch import nn

from tests.architectures import own_networks as networks
from tests.architectures import own_transformers as transformers
from tests.architectures.own_transformers import Decoder
from tests.architectures.subject import Inputs, MakeInputs, Subject, images, tokens, vectors


def _numbers(**shapes: tuple[int, ...]) -> MakeInputs:
    """Random numbers of the given shapes."""

    def inputs(samples: int, seed: int) -> Inputs:
        random = torch.Generator().manual_seed(seed)
        return {name: torch.randn(samples, *shape, generator=random) for name, shape in shapes.items()}

    return inputs


_DECODERS: dict[str, Callable[[], nn.Module]] = {
    "meta_llama": lambda: Decoder(transformers.MetaLayer),
    "parallel_block": lambda: Decoder(transformers.ParallelLayer),
    "alibi_attention": lambda: Decoder(transformers.AlibiLayer),
    "sliding_window": lambda: Decoder(transformers.WindowLayer),
    "norm_over_heads": lambda: Decoder(transformers.NormedHeadsLayer),
    "einsum_attention": lambda: Decoder(transformers.EinsumLayer),
    "top_k_experts": lambda: Decoder(transformers.TopKLayer),
    "soft_mixture": lambda: Decoder(transformers.SoftMixtureLayer),
    "gated_scan": lambda: Decoder(transformers.GatedScanLayer),
    "fourier_mixing": lambda: Decoder(transformers.FourierLayer),
    "tied_embedding": lambda: Decoder(transformers.WindowLayer, tied=True),
    "low_rank_frozen": lambda: Decoder(transformers.LowRankLayer),
    "label_smoothing": lambda: transformers.Smoothed(transformers.ParallelLayer),
    "z_loss": lambda: transformers.ZLoss(transformers.ParallelLayer),
    "shared_layers": transformers.SharedLayers,
    "dropped_tied": transformers.DroppedTied,
    "cross_attention": transformers.CrossAttention,
    "lstm": lambda: networks.Recurrent(nn.LSTM),
    "gru": lambda: networks.Recurrent(nn.GRU),
    "written_recurrence": networks.WrittenRecurrence,
    "depthwise_text": networks.DepthwiseText,
}
_OTHERS: dict[str, tuple[Callable[[], nn.Module], MakeInputs]] = {
    "group_norm_convolutions": (networks.GroupedConvolutions, images(8)),
    "unet": (networks.Unet, images(8)),
    "denoiser": (networks.Denoiser, _numbers(x=(3, 8, 8), noise=(3, 8, 8), time=(1,))),
    "regression": (networks.Regression, _numbers(x=(10,), wanted=(2,))),
    "summed_regression": (networks.SummedRegression, _numbers(x=(10,), wanted=(2,))),
    "batch_norm": (networks.BatchNormed, images(8)),
    "message_passing": (networks.MessagePassing, vectors(x=(6, 5))),
    "mlp_mixer": (networks.MlpMixer, vectors(x=(6, 16))),
    "weight_norm": (networks.WeightNormed, vectors(x=10)),
    "towers": (networks.Towers, vectors(x=8, z=5)),
}


def subjects() -> dict[str, Subject]:
    """All of them, by name."""
    listed = [(name, build, tokens, True) for name, build in _DECODERS.items()]
    listed += [(name, build, inputs, False) for name, (build, inputs) in _OTHERS.items()]
    return {
        name: Subject(name=name, kind="own module", build=build, inputs=inputs, sequence=sequence)
        for name, build, inputs, sequence in listed
    }
