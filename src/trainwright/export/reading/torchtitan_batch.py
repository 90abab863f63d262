"""Batch and sequence length of torchtitan's configurations, in the terms of any of its releases."""

from dataclasses import dataclass

from trainwright.errors import BadInput
from trainwright.export.reading.configured import StatedSettings, check_positive
from trainwright.export.reading.torchtitan_settings import TitanSettings
from trainwright.model.config_fields import Config

_SEQ, _LOCAL, _TOKENS = 2048, 8, 16384  # torchtitan's own defaults
_BY_TOKENS = ("max_context_length", "num_tokens_per_microbatch_per_dp_rank", "num_tokens_per_train_step")
_BY_SEQUENCES = ("seq_len", "local_batch_size", "global_batch_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class TitanBatch:
    """Sequences of a microbatch and of a replica's run, and of a step where they are stated."""

    seq: int | None
    micro_batch: int
    local_batch: int  # of one replica, in one run of its pipeline
    stated_total: int = 0
    notes: tuple[str, ...] = ()

    def total(self, dp: int) -> int:
        """Sequences of a step."""
        return self.stated_total or self.local_batch * dp


def read_batch(
    settings: TitanSettings, parallel: Config, training: Config, stated: StatedSettings
) -> TitanBatch:
    """The batch, by tokens (since August 2026) or by sequences."""
    pp = parallel.whole("pipeline_parallel_degree", 1)
    by_tokens = [name for name in _BY_TOKENS if name in training.values]
    by_sequences = [name for name in _BY_SEQUENCES if name in training.values]
    if by_tokens and by_sequences:
        rule = f"belongs to another release than {by_sequences[0]}"
        raise BadInput(f"{training.source}: {by_tokens[0]}", "", rule, "keep one of them")
    if by_tokens or "num_pp_microbatches" in parallel.values:
        return _by_tokens(parallel, training, stated, pp)
    return _by_sequences(settings, parallel, training, stated, pp)


def _by_tokens(parallel: Config, training: Config, stated: StatedSettings, pp: int) -> TitanBatch:
    seq = training.whole("max_context_length", _SEQ)
    tokens = training.whole("num_tokens_per_microbatch_per_dp_rank", _TOKENS)
    step = training.whole("num_tokens_per_train_step", -1)
    if seq < 1 or tokens % seq or tokens < seq:
        rule = f"is not a whole number of sequences of max_context_length = {seq}"
        raise BadInput(
            f"{training.source}: num_tokens_per_microbatch_per_dp_rank", tokens, rule, "state --micro-batch"
        )
    micro = stated.micro_batch or tokens // seq
    if step > 0 and step % seq:
        rule = f"is not a whole number of sequences of max_context_length = {seq}"
        raise BadInput(f"{training.source}: num_tokens_per_train_step", step, rule, "correct it")
    rounds = parallel.whole("num_pp_microbatches", 1) if pp > 1 else 1
    return TitanBatch(
        seq=seq,
        micro_batch=micro,
        local_batch=micro * rounds,
        stated_total=max(step // seq, 0) if step > 0 else 0,
    )


def _by_sequences(
    settings: TitanSettings, parallel: Config, training: Config, stated: StatedSettings, pp: int
) -> TitanBatch:
    if settings.base and "local_batch_size" not in training.values and not stated.micro_batch:
        rule = f"is not in the text, and {settings.base} of torchtitan sets it"
        raise BadInput(f"{training.source}: local_batch_size", "", rule, "state --micro-batch")
    local = training.whole("local_batch_size", _LOCAL)
    check_positive(local, f"{training.source}: local_batch_size")
    micro = _micro_batch(settings, parallel, training, local, pp) if pp > 1 else local
    if stated.micro_batch:
        local = local if pp > 1 else stated.micro_batch
        micro = stated.micro_batch
    total = training.whole("global_batch_size", -1)
    seq = training.whole("seq_len", 0 if settings.base else _SEQ)
    if "seq_len" in training.values:
        check_positive(seq, f"{training.source}: seq_len")
    return TitanBatch(seq=seq or None, micro_batch=micro, local_batch=local, stated_total=max(total, 0))


def _micro_batch(settings: TitanSettings, parallel: Config, training: Config, local: int, pp: int) -> int:
    """Sequences of a pipeline's microbatch: as stated, or by their number as in early 2025."""
    sized = "pipeline_parallel_microbatch_size" in parallel.values or not settings.renamed
    if sized and "microbatches" not in training.values:
        return parallel.whole("pipeline_parallel_microbatch_size", 1)
    count = training.whole("microbatches", pp)
    if count < 1 or local % count:
        rule = f"does not divide the batch of {local}"
        raise BadInput(f"{training.source}: pipeline_parallel_microbatches", count, rule, "correct it")
    return local // count
