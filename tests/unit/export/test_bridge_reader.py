"""Python of Megatron-Bridge and NeMo: read without running it."""

import pytest

from tests.fuzz.stacks import BRIDGE
from trainwright.errors import BadInput
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.read import read_text
from trainwright.model.load import load_model


def read(text: str, devices: int = 8, **stated: object) -> Configured:
    return read_text(text, "plan.py", stated=StatedSettings(devices=devices, **stated))  # type: ignore[arg-type]


def with_lines(*lines: str) -> str:
    return BRIDGE.replace("    return cfg\n", "".join(f"    {line}\n" for line in lines) + "    return cfg\n")


def test_a_recipe_and_what_is_set_on_it_are_a_plan() -> None:
    found = read(BRIDGE)
    assert str(found.strategy) == "dp4 tp2 sp mb1 zero1 bf16"
    assert (found.global_batch, found.seq, found.stack, found.model) == (4, 512, "nemo", "llama3-8b")
    assert found.notes == ()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("cfg.model.context_parallel_size = 2", 'cfg.model.cp_comm_type = "all_gather"'), "cp2 allgather"),
        (("cfg.model.pipeline_model_parallel_size = 2",), "dp2 tp2 sp pp2 mb1"),
        (
            (
                "cfg.model.pipeline_model_parallel_size = 2",
                "cfg.model.virtual_pipeline_model_parallel_size = 4",
            ),
            "pp2 vpp4 mb1 zero1 interleaved",
        ),
        (
            (
                "cfg.model.pipeline_model_parallel_size = 2",
                'cfg.model.pipeline_model_parallel_layout = "Et*8|t*8|t*8|t*8L"',
            ),
            "pp2 vpp2",
        ),
        (
            (
                "cfg.model.pipeline_model_parallel_size = 2",
                'cfg.model.pipeline_model_parallel_layout = [["embedding"] + [], ["loss"]]',
            ),
            "",
        ),
        (('cfg.mixed_precision = "bf16_with_fp8_current_scaling_mixed"',), "fp8"),
        (('cfg.mixed_precision = "bf16_with_nvfp4_mixed"',), "fp4"),
        (("cfg.mixed_precision = None",), "fp32"),
        (("cfg.comm_overlap.overlap_grad_reduce = False",), "no-overlap"),
        (
            (
                "cfg.ddp.use_megatron_fsdp = True",
                'cfg.ddp.data_parallel_sharding_strategy = "optim_grads_params"',
            ),
            "zero3",
        ),
        (("cfg.optimizer.optimizer_cpu_offload = True",), "offload-optimizer"),
        (
            ("cfg.model.cpu_offloading = True", "cfg.model.cpu_offloading_num_layers = 31"),
            "offload-activations",
        ),
        (
            ("cfg.model.cpu_offloading = True", "cfg.model.cpu_offloading_num_layers = 5"),
            "offload-activations5",
        ),
        (("cfg.model.cpu_offloading_num_layers = 31",), "zero1 bf16"),  # off without the switch
        (("cfg.dist.use_tp_pp_dp_mapping = True", "cfg.model.pipeline_model_parallel_size = 2"), "order="),
    ],
)
def test_each_field_is_read(lines: tuple[str, ...], words: str) -> None:
    if not words:
        with pytest.raises(BadInput, match="is not a plain value"):
            read(with_lines(*lines))
        return
    assert words in str(read(with_lines(*lines)).strategy)


def test_a_layout_in_names_is_read_and_layers_that_differ_from_the_prediction_are_named() -> None:
    names = '[["embedding", *["decoder"] * 20], [*["decoder"] * 12, "loss"]]'
    layout = eval(names)
    lines = (
        "cfg.model.pipeline_model_parallel_size = 2",
        f"cfg.model.pipeline_model_parallel_layout = {layout}",
    )
    found = read(with_lines(*lines))
    assert found.strategy.pp == 2
    assert "Layers per chunk are 20, 12 by the flags: predicted with 16 x2." in found.notes


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cfg.model.tensor_model_paralel_size = 2", "did you mean"),
        ("cfg.model.tensor_model_parallel_size = degree", "is not a plain value"),
        ("cfg.model.num_layers = 4", "changes the recipe's model"),
        ("cfg.peft.dim = 8", "another job than GPT pretraining"),
        ("cfg.model.tensor_parallel_num_weight_shards = 4", "splits the job in a way that is not read"),
        ('cfg.mixed_precision = "int4"', "mixed_precision"),
        ("if big: cfg.model.context_parallel_size = 2", "under a condition, which is not read"),
    ],
)
def test_what_is_not_read_is_refused(line: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read(with_lines(line))


def test_what_matters_and_what_is_called_is_named() -> None:
    found = read(with_lines("cfg.model.tp_comm_overlap = True", "cfg.logger.log_interval = 5", "tune(cfg)"))
    assert found.notes == (
        "Not considered, and it matters: model.tp_comm_overlap.",
        "Not read: tune, which may change the configuration.",
    )


def test_what_the_recipe_sets_is_asked_for() -> None:
    with pytest.raises(BadInput, match=r"train.micro_batch_size: is not in the text"):
        read(BRIDGE.replace("    cfg.train.micro_batch_size = 1\n", ""))
    assert read(BRIDGE.replace("    cfg.train.micro_batch_size = 1\n", ""), micro_batch=1).global_batch == 4


def test_sizes_that_differ_from_the_recipe_are_accepted_where_the_model_is_stated() -> None:
    found = read(with_lines("cfg.model.num_layers = 4"), architecture=load_model("llama3-8b"))
    assert found.model is None


def test_the_function_is_named_where_there_are_several() -> None:
    text = BRIDGE + BRIDGE.replace("def mine", "def other").replace(
        "micro_batch_size = 1", "micro_batch_size = 2"
    )
    with pytest.raises(BadInput, match=r"name one as FILE.py:FUNCTION, of mine, other"):
        read(text)
    assert read(text, function="other").strategy.micro_batch == 2
