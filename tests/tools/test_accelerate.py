"""accelerate loads the YAML that is exported for it."""

from pathlib import Path

import pytest

from trainwright.export.handover import Handover
from trainwright.export.targets import export_text
from trainwright.plan.strategy import parse_strategy

config_args = pytest.importorskip("accelerate.commands.config.config_args")
STRATEGIES = (
    "dp8 mb2 zero0 fp16", "dp8 mb1 zero2", "dp16 mb1 zero3 hsdp8 full", "dp4 tp2 mb1 zero3",
    "dp2 cp4 allgather zero3", "dp1 fp32",
)  # fmt: skip


@pytest.mark.parametrize("text", STRATEGIES)
def test_accelerate_reads_its_file_as_it_was_meant(tmp_path: Path, text: str) -> None:
    plan = parse_strategy(text)
    path = tmp_path / "accelerate.yaml"
    path.write_text(
        export_text(Handover(strategy=plan, global_batch=plan.dp * plan.micro_batch), "accelerate")
    )
    config = config_args.load_config_from_file(str(path))  # which refuses keys that it does not know
    assert config.num_processes == plan.devices
    assert config.mixed_precision == {"fp32": "no"}.get(plan.precision, plan.precision)
    if plan.zero:
        assert config.fsdp_config["fsdp_version"] == 2
        assert config.fsdp_config["fsdp_reshard_after_forward"] == (plan.zero == 3)
        assert config.fsdp_config["fsdp_activation_checkpointing"] == (plan.recompute == "full")


@pytest.mark.parametrize("text", [each for each in STRATEGIES if "zero3" in each or "zero2" in each])
def test_its_launcher_takes_every_key_for_one_of_its_flags(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils.launch import prepare_multi_gpu_env

    plan = parse_strategy(text)
    path = tmp_path / "accelerate.yaml"
    path.write_text(
        export_text(Handover(strategy=plan, global_batch=plan.dp * plan.micro_batch), "accelerate")
    )
    told = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    options, _, _ = _validate_launch_command(told)
    for name, value in prepare_multi_gpu_env(options).items():
        if name.startswith(("PARALLELISM_CONFIG", "FSDP", "ACCELERATE")):
            monkeypatch.setenv(name, value)
    found = ParallelismConfig()  # as Accelerator makes it from the environment
    shards = (plan.shard or plan.dp * plan.cp) // plan.cp
    assert (found.dp_shard_size, found.dp_replicate_size) == (shards, plan.dp // shards)
    assert (found.tp_size, found.cp_size, found.total_size) == (plan.tp, plan.cp, plan.devices)
