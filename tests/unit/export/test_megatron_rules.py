"""Megatron-LM's rules: jobs that break them, jobs that do not, and the cases that it judged itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trainwright.export.flags import Flag
from trainwright.export.megatron_model import model_flags
from trainwright.export.reading.launch_flags import Flags, parse_flags
from trainwright.export.reading.megatron_job import MegatronJob, job_of
from trainwright.export.reading.megatron_rules import is_valid, refusals
from trainwright.model.load import load_model

SHARED = Path(__file__).parents[4] / "shared" / "ecosystem"
CASES = SHARED / "megatron_legality_cases.json"
needs_facts = pytest.mark.skipif(not SHARED.is_dir(), reason="Megatron-LM's own verdicts are not at hand")
# The models that the cases are of, by the word that their names begin with; sequences as the cases have them.
MODELS = {
    "405B": ("llama3-405b", 8192), "70B": ("llama3-70b", 8192), "8B": ("llama3-8b", 8192),
    "DSv3": ("deepseek-v3", 4096), "Qwen3-235B": ("qwen3-235b-a22b", 4096),
}  # fmt: skip


def job(
    text: str, model: str = "llama3-8b", world: int = 8, family: str = "hopper", seq: int = 8192,
    connections: str | None = "1",
) -> MegatronJob:  # fmt: skip
    """A job of bf16 with the flags of a model and some more."""
    arch = load_model(model)
    words = [*_words(model_flags(arch, seq)), "--micro-batch-size", "1", "--bf16", *text.split()]
    flags = parse_flags(" ".join(f"'{each}'" for each in words), "case", "num-layers".__eq__)
    environment = {} if connections is None else {"CUDA_DEVICE_MAX_CONNECTIONS": connections}
    return job_of(replace(flags, environment=environment), arch, world, family, knows_environment=True)


def _words(flags: tuple[Flag, ...]) -> list[str]:
    return [word for each in flags for word in each]


def broken(text: str, **facts: object) -> list[str]:
    """What a job breaks, in words."""
    return [str(each) for each in refusals(job(text, **facts))]  # type: ignore[arg-type]


@needs_facts
def test_the_cases_that_megatron_judged_itself_are_classified_alike() -> None:
    cases = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    wrong = []
    for case in cases:
        model, seq = MODELS[case["case"].split()[0]]
        found = job(
            case["args"], model, case["world_size"], case["arch"].lower(), seq,
            case["CUDA_DEVICE_MAX_CONNECTIONS"],
        )  # fmt: skip
        if is_valid(found) != (case["verdict"] == "VALID"):
            wrong.append((case["case"], [str(each) for each in refusals(found)]))
    assert wrong == []
    assert len(cases) >= 51


VALID: dict[str, tuple[str, dict[str, object]]] = {
    "plain": ("--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather", {}),
    "tp with one connection": ("--tensor-model-parallel-size 2 --sequence-parallel", {}),
    "tp on Blackwell": ("--tensor-model-parallel-size 2", {"family": "blackwell", "connections": None}),
    "layout": ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*15|t*17L", {}),
    "layout of groups": (
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout E|(t*16|)*2,L",
        {},
    ),
    "ends": (
        "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 6 "
        "--decoder-last-pipeline-num-layers 6",
        {},
    ),
    "selective": ("--recompute-granularity selective --recompute-modules core_attn mlp", {}),
    "fp8 with another recipe": (
        "--fp8-format hybrid --fp8-recipe tensorwise --recompute-granularity selective "
        "--recompute-modules layernorm",
        {},
    ),
    "expert overlap": (
        "--expert-model-parallel-size 8 --overlap-moe-expert-parallel-comm --delay-wgrad-compute",
        {"model": "mixtral-8x7b"},
    ),
    "activations on the host": ("--cpu-offloading-num-layers 31", {}),
    "full-iteration graph": (
        "--cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad --recompute-granularity full "
        "--recompute-method uniform --recompute-num-layers 1",
        {},
    ),
    "Muon": ("--optimizer muon --use-distributed-optimizer", {}),
    "hierarchical cp": (
        "--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 2",
        {},
    ),
}
_FSDP = "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --ckpt-format fsdp_dtensor "
_OVERLAP = "--expert-model-parallel-size 8 --overlap-moe-expert-parallel-comm "
REFUSED: dict[str, tuple[str, dict[str, object], str]] = {
    "world": ("--tensor-model-parallel-size 3 ", {"world": 8}, "must divide by tp·pp·cp = 3"),
    "kv heads": ("--tensor-model-parallel-size 12", {"world": 24, "model": "llama3-70b"}, "attention heads"),
    "layers": ("--pipeline-model-parallel-size 5", {"world": 5}, "must divide 32 layers"),
    "chunks": (
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3",
        {},
        "8 layers of a stage",
    ),
    "chunks without stages": ("--num-virtual-stages-per-pipeline-rank 2", {}, "need pp above 1"),
    "two numbers of chunks": (
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
        "--num-layers-per-virtual-pipeline-stage 4",
        {},
        "cannot be set with",
    ),
    "accounted": (
        "--pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split",
        {},
        "must divide 33 layers",
    ),
    "layout of another model": (
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*15|t*16L",
        {},
        "has 31 layers",
    ),
    "layout without loss": (
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*16|t*16",
        {},
        "must end with L",
    ),
    "layout and chunks": (
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*16|t*16L "
        "--num-virtual-stages-per-pipeline-rank 1",
        {},
        "leave out their number",
    ),
    "layout that does not divide": (
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*8|t*8|t*16L",
        {},
        "must divide 3 chunks",
    ),
    "MTP on the first stage": (
        "--mtp-num-layers 1 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout E|t*16|t*16m|L",
        {},
        "MTP layers on the first stage",
    ),
    "ends that leave a rest": (
        "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 7",
        {},
        "leaves 25 layers for 3",
    ),
    "ends and accounts": (
        "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 8 "
        "--account-for-loss-in-pipeline-split",
        {},
        "cannot be set with",
    ),
    "FSDP with one queue": (_FSDP, {}, "must not be 1 with Megatron-FSDP"),
    "FSDP and lion": (_FSDP + "--optimizer lion", {"connections": None}, "does not go with --optimizer lion"),
    "FSDP of no shards on meta": (
        "--use-megatron-fsdp --data-parallel-sharding-strategy no_shard --ckpt-format fsdp_dtensor "
        "--init-model-with-meta-device",
        {"connections": None},
        "no_shard",
    ),
    "torch FSDP and sharded optimizer": (
        "--use-torch-fsdp2 --no-gradient-accumulation-fusion --use-distributed-optimizer",
        {},
        "does not go with --use-distributed-optimizer",
    ),
    "torch FSDP with fusion": ("--use-torch-fsdp2", {}, "gradient accumulation fusion"),
    "tied torch FSDP": (
        "--use-torch-fsdp2 --no-gradient-accumulation-fusion",
        {"model": "llama3.2-1b"},
        "tied embeddings",
    ),
    "gather without reduce": (
        "--use-distributed-optimizer --overlap-param-gather",
        {},
        "needs --overlap-grad-reduce",
    ),
    "gather without shards": (
        "--overlap-grad-reduce --overlap-param-gather",
        {},
        "needs --use-distributed-optimizer",
    ),
    "experts that do not divide": (
        "--expert-model-parallel-size 3",
        {"model": "mixtral-8x7b", "world": 3},
        "must divide 8 experts",
    ),
    "experts of a dense model": ("--expert-model-parallel-size 2", {}, "needs a model with experts"),
    "expert bias of a softmax": ("--moe-router-enable-expert-bias", {"model": "mixtral-8x7b"}, "sigmoid"),
    "overlap of one expert rank": (
        "--overlap-moe-expert-parallel-comm",
        {"model": "mixtral-8x7b"},
        "needs expert parallelism",
    ),
    "overlap by gathering": (
        _OVERLAP + "--moe-token-dispatcher-type allgather",
        {"model": "mixtral-8x7b"},
        "alltoall or flex",
    ),
    "overlap of two MTP layers": (
        _OVERLAP + "--mtp-num-layers 2",
        {"model": "mixtral-8x7b"},
        "at most one MTP layer",
    ),
    "selective with layers": (
        "--recompute-granularity selective --recompute-num-layers 2",
        {},
        "takes no number of layers",
    ),
    "full without a method": ("--recompute-granularity full --recompute-num-layers 2", {}, "full needs"),
    "unknown module": (
        "--recompute-granularity selective --recompute-modules attention",
        {},
        "attention is none of",
    ),
    "mla_up_proj without MLA": (
        "--recompute-granularity selective --recompute-modules mla_up_proj",
        {},
        "--multi-latent-attention",
    ),
    "all layers on the host": ("--cpu-offloading-num-layers 32", {}, "must be below 32"),
    "fp8 and fp4": ("--fp8-format hybrid --fp4-format e2m1", {}, "does not go with fp8"),
    "fp16 and bf16": ("--fp16", {}, "does not go with --bf16"),
    "graph of dropless experts": (
        "--cuda-graph-impl local --cuda-graph-modules moe",
        {"model": "mixtral-8x7b"},
        "fixed capacity",
    ),
    "full-iteration graph that checks": ("--cuda-graph-impl full_iteration", {}, "no-check-for-nan"),
    "fused loss of TE": (
        "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te",
        {},
        "te is refused",
    ),
    "weight shards with instances": (
        "--tensor-parallel-num-weight-shards 2 --num-distributed-optimizer-instances 2 "
        "--use-distributed-optimizer",
        {},
        "one instance",
    ),
    "weight shards of mxfp8": (
        "--tensor-parallel-num-weight-shards 2 --fp8-format e4m3 --fp8-recipe mxfp8",
        {"family": "blackwell"},
        "--fp8-param-gather",
    ),
    "hybrid cp with stages": (
        "--hybrid-context-parallel --context-parallel-size 2 --pipeline-model-parallel-size 2",
        {},
        "does not go with pp",
    ),
    "deferred wgrad of one stage": ("--defer-embedding-wgrad-compute", {}, "needs pp above 1"),
    "attn_proj alone on the host": (
        "--fine-grained-activation-offloading --offload-modules attn_proj",
        {},
        "needs core_attn",
    ),
    "sizes of cp": (
        "--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2",
        {},
        "must be cp = 8",
    ),
}
LAUNCH: dict[str, tuple[str, dict[str, object], str]] = {
    "experts on too few ranks": (
        "--expert-model-parallel-size 8 --expert-tensor-parallel-size 2",
        {"model": "mixtral-8x7b"},
        "etp·ep·pp = 16",
    ),
    "microbatches of interleaved stages": (
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 --global-batch-size 10",
        {},
        "whole groups of 4",
    ),
    "batch": ("--global-batch-size 12", {}, "must divide by micro batch x replicas = 8"),
    "order": (
        "--use-tp-pp-dp-mapping --pipeline-model-parallel-size 2 --expert-model-parallel-size 4 ",
        {"model": "mixtral-8x7b"},
        "as many replicas of experts",
    ),
    "mxfp8 before Blackwell": ("--fp8-format e4m3 --fp8-recipe mxfp8", {}, "needs Blackwell"),
    "precision-aware without shards": (
        "--use-precision-aware-optimizer",
        {},
        "needs --use-distributed-optimizer",
    ),
}


@pytest.mark.parametrize("name", VALID)
def test_a_legal_job_breaks_nothing(name: str) -> None:
    text, facts = VALID[name]
    assert broken(text, **facts) == []


@pytest.mark.parametrize("name", REFUSED)
def test_an_illegal_job_breaks_the_rule_that_it_is_named_for(name: str) -> None:
    text, facts, rule = REFUSED[name]
    found = broken(text, **facts)
    assert any(rule in each for each in found), found
    assert not is_valid(job(text, **facts))


@pytest.mark.parametrize("name", LAUNCH)
def test_what_only_a_start_shows_is_named_and_parses(name: str) -> None:
    text, facts, rule = LAUNCH[name]
    found = broken(text, **facts)
    assert any(rule in each for each in found), found
    assert is_valid(job(text, **facts))


def test_a_variable_that_the_text_does_not_set_may_be_set_elsewhere() -> None:
    text = "--num-layers 32 --tensor-model-parallel-size 2"
    flags: Flags = parse_flags(text, "case", "num-layers".__eq__)
    found = list(refusals(job_of(flags, None, 8, "hopper")))
    assert [each.at for each in found] == ["launch"]
    assert "the text does not set it" in str(found[0])
