"""Subnetworks of real networks: slices, masks, coverage, coupling."""

import math
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.runtime import algorithms as tried  # noqa: E402
from trainwright.algorithm.coupling import (  # noqa: E402
    coupling,
    gate_curvature,
    gated,
    learned,
    relative_loss,
    together,
)
from trainwright.algorithm.learning import Learning  # noqa: E402
from trainwright.algorithm.network import Batch, Mlp  # noqa: E402
from trainwright.algorithm.partition import Cut, held_sizes, places  # noqa: E402
from trainwright.algorithm.registry import (  # noqa: E402
    ALGORITHMS,
    parse_algorithm,
    render_algorithm,
)
from trainwright.algorithm.teacher import build_task, teach  # noqa: E402
from trainwright.algorithm.theory.quadratic import homogeneous  # noqa: E402
from trainwright.algorithm.theory.scale import best_scale  # noqa: E402
from trainwright.algorithm.theory.subnetworks import Subnetworks  # noqa: E402
from trainwright.algorithm.train import Order, train  # noqa: E402
from trainwright.errors import BadInput  # noqa: E402
from trainwright.model.load import load_model  # noqa: E402
from trainwright.runtime.apart.network import LearnerNetwork  # noqa: E402
from trainwright.runtime.learner import build_learner  # noqa: E402

GQA = "layers = 2\nhidden = 16\nheads = 8\nkv_heads = 4\nffn = 24\nvocab = 256\n"


def gates_of(cut: Cut, rank: int) -> torch.Tensor:
    """1 for the units that a worker holds in the first round, else 0."""
    chosen = cut.draw(0, 5)[rank]
    pieces = []
    for group, units in cut.anatomy.units.items():
        pieces.append(torch.zeros(units))
        pieces[-1][torch.from_numpy(chosen[group])] = 1.0
    return torch.cat(pieces)


@pytest.mark.parametrize("name", ["mlp", "residual", "transformer", "catalog"])
def test_a_slice_computes_what_the_whole_network_does_with_the_other_units_shut(
    name: str, tmp_path: Path
) -> None:
    if name == "catalog":
        (tmp_path / "gqa.toml").write_text(GQA)
        network = LearnerNetwork(learner=build_learner(load_model(str(tmp_path / "gqa.toml")), 8, 0, None))
        inputs = torch.randint(256, (2, 9), generator=torch.Generator().manual_seed(1))
    else:
        network, inputs = tried.NETWORKS[name], tried.task_of(name).batch(0).inputs
    cut, values = Cut(anatomy=network.anatomy, workers=3, coverage=0.5), network.initial(2)
    for rank in range(3):
        chosen, part = cut.draw(0, 5)[rank], {}
        for weight in network.anatomy.weights:
            sizes = held_sizes(weight, chosen)
            if sizes is not None:
                flat = values[weight.name].reshape(-1)[torch.from_numpy(places(weight, chosen))]
                part[weight.name] = flat.view(sizes)
        whole = network.outputs(gated(network.anatomy, values, gates_of(cut, rank)), inputs)
        assert network.outputs(part, inputs).numpy() == pytest.approx(whole.numpy(), abs=1e-5)
        divided = sum(part[w.name].numel() for w in network.anatomy.partitioned if w.name in part)
        assert divided == cut.elements(rank)


def test_every_unit_has_about_the_same_count_of_holders() -> None:
    anatomy = tried.NETWORKS["mlp"].anatomy
    for coverage in (0.0, 0.5, 1.0):
        drawn = Cut(anatomy=anatomy, workers=4, coverage=coverage).draw(3, 0)
        for group, units in anatomy.units.items():
            holders = sum(np.bincount(each[group], minlength=units) for each in drawn)
            assert holders.min() >= 1
            assert holders.max() - holders.min() <= 1
    fresh = [Cut(anatomy=anatomy, workers=4).draw(number, 0)[0]["hidden.0"].tolist() for number in range(4)]
    assert len({tuple(each) for each in fresh}) > 1


def test_memory_and_bytes_of_a_subnetwork_fall_with_the_count_of_workers() -> None:
    anatomy, algorithm = Mlp(inputs=16, hidden=(512, 512, 512), classes=10).anatomy, parse_algorithm("ist")
    shares = [algorithm.memory(anatomy, n).weights / anatomy.elements for n in (2, 4, 8)]
    # Between hidden layers a home is 1/n and a slice 1/n^2 of the weights: 0.75, 0.31, 0.14.
    assert shares == pytest.approx([0.75, 0.31, 0.14], abs=0.02)


def test_the_curvature_of_gates_is_that_of_differences() -> None:
    network, task = tried.NETWORKS["transformer"], tried.task_of("transformer")
    values = {name: each.double() for name, each in network.initial(0).items()}
    torch.set_default_dtype(torch.float64)
    try:
        bent = gate_curvature(network, values, task.batch(0))
        ones = torch.ones(len(bent))

        def loss(gates: torch.Tensor) -> float:
            return float(network.loss(gated(network.anatomy, values, gates), task.batch(0)))

        size = 1e-4
        for i, j in ((0, 1), (0, 8), (3, 3)):
            a, b = (torch.eye(len(bent))[k] * size for k in (i, j))
            found = loss(ones + a + b) - loss(ones + a - b) - loss(ones - a + b) + loss(ones - a - b)
            assert bent[i, j] == pytest.approx(found / (4 * size**2), abs=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)


def test_coupling_tells_which_networks_and_coverages_subnetworks_hurt() -> None:
    data = teach(16, 4, 4000, width=6)
    gaps, predicted = [], []
    for hidden in ((96,), (24, 24)):
        network = Mlp(inputs=16, hidden=hidden, classes=4)
        task = build_task(network, data.train, data.test, 64)
        found = {}
        for text in ("ddp", "local-sgd every=10", "ist every=10 coverage=0.5", "ist every=10"):
            learning = Learning(optimizer="adamw", rate=3e-3)
            order = Order(algorithm=parse_algorithm(text), learning=learning, workers=4, steps=120, seed=1)
            found[text] = train(task, order)
        exact, rounds = found.pop("ddp"), found.pop("local-sgd every=10")
        rarely = rounds.last.judged["loss"] - exact.last.judged["loss"]  # what meeting rarely costs
        cuts = [parse_algorithm(text).cut(network.anatomy, 4) for text in found]  # type: ignore[attr-defined]
        foretold = coupling(network, exact.values, data.validation, cuts)
        predicted += [each.excess_loss + rarely for each in foretold]
        gaps += [course.last.judged["loss"] - exact.last.judged["loss"] for course in found.values()]
    # The same network with half of the units and with a quarter; the same cut of a wide and a narrow network.
    for few, more in ((0, 1), (2, 3), (0, 2), (1, 3)):
        assert predicted[few] < predicted[more]
        assert gaps[few] < gaps[more]
    assert all(0.4 < p / g < 2.5 for p, g in zip(predicted, gaps, strict=True))  # the size roughly


def test_coupling_loses_on_a_quadratic_what_theory_says() -> None:
    source = np.random.default_rng(3)
    root = source.standard_normal((8, 8))
    bent = root @ root.T + 0.1 * np.eye(8)
    anatomy = Mlp(inputs=3, hidden=(8,), classes=2).anatomy
    for coverage, held in ((0.0, 2), (0.5, 4), (0.75, 6), (1.0, 8)):
        method = Subnetworks(quadratic=homogeneous(bent, bent.sum(1), 4), held=held)  # its minimum is 1
        ended = best_scale(method) * method.fixed_point() - 1.0
        share = (ended @ bent @ ended) / bent.sum()  # of the loss at 0
        mixing = together(Cut(anatomy=anatomy, workers=4, coverage=coverage))
        assert relative_loss(bent, mixing) == pytest.approx(share, rel=1e-5, abs=1e-9)
        assert relative_loss(1e-3 * bent, mixing) == pytest.approx(share, rel=1e-5, abs=1e-9)
    uncoupled = np.diag(source.random(8))
    assert relative_loss(uncoupled, together(Cut(anatomy=anatomy, workers=4))) == pytest.approx(0.0, abs=1e-8)


def test_what_was_learned_is_what_frequencies_do_not_tell() -> None:
    network = Mlp(inputs=1, hidden=(), classes=2)

    def known(slope: float, inputs: list[float], answers: list[int]) -> float:
        values = {"layer.0.weight": torch.tensor([[slope], [-slope]]), "layer.0.bias": torch.zeros(2)}
        return learned(network, values, Batch(torch.tensor(inputs)[:, None], torch.tensor(answers)))

    half = 0.5 * math.log(3.0)  # of logits that are ln 3 apart: each right answer has the chance 3/4
    assert known(half, [1.0, -1.0], [0, 1]) == pytest.approx(math.log(2.0) - math.log(4 / 3), abs=1e-6)
    # Frequencies of 3/4 and 1/4 have the entropy 0.562, less than the 0.693 of who knows nothing.
    assert known(0.0, [1.0, 1.0, 1.0, -1.0], [0, 0, 0, 1]) == 0.0


def test_a_network_is_foretold_to_lose_a_share_of_what_it_has_learned() -> None:
    network, task = tried.NETWORKS["mlp"], tried.task_of("mlp")
    order = Order(
        algorithm=parse_algorithm("ddp"), learning=Learning(optimizer="adamw", rate=1e-2), workers=1, steps=40
    )
    values, cut = train(task, order).values, Cut(anatomy=network.anatomy, workers=4)
    whole = Cut(anatomy=network.anatomy, workers=4, coverage=1.0)
    apart, none = coupling(network, values, task.batch(0), [cut, whole])
    assert apart.learned == none.learned == learned(network, values, task.batch(0)) > 0
    assert apart.excess_loss == apart.share * apart.learned > 0
    assert none.share == pytest.approx(0.0, abs=1e-6)  # who holds everything loses nothing


def test_gates_of_groups_with_other_shares_end_where_drawn_subnetworks_put_them() -> None:
    anatomy = Mlp(inputs=3, hidden=(2, 8), classes=2).anatomy
    cut = Cut(anatomy=anatomy, workers=4)  # half of the first group, a quarter of the other
    masks = []
    for number in range(4000):
        for chosen in cut.draw(number, 0):
            mask = np.zeros(10)
            mask[chosen["hidden.0"]], mask[2 + chosen["hidden.1"]] = 1.0, 1.0
            masks.append(mask)
    both = np.mean([np.outer(each, each) for each in masks], axis=0)
    assert together(cut) == pytest.approx(both / np.diag(both)[:, None], abs=0.03)


def test_algorithms_are_read_as_they_are_written() -> None:
    for name in ALGORITHMS:
        assert parse_algorithm(render_algorithm(parse_algorithm(name))) == parse_algorithm(name)
    assert parse_algorithm("ist every=7 coverage=0.5").every == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("isst", "did you mean"),
        ("ist evry=3", "did you mean"),
        ("ist every=x", "is no whole number"),
        ("ist every=0", "is no whole number of 1 or more"),
        ("ist coverage=2", "is no share between 0 and 1"),
        ("ist scale=big", "is unknown"),
        ("diana by=top-k", "is biased"),
        ("compressed by=top-q", "no such name"),
        ("compressed feedback=maybe", "is neither yes nor no"),
        ("streaming-diloco every=2 fragments=4", "leaves no step"),
        ("", "no such name"),
        ("ddp every=3", "ddp has no hyperparameters"),
        ("ist every=3 every=5", "states every twice"),
        ("diloco rate=nan", "is no finite number above 0"),
        ("diloco rate=-1", "is no finite number above 0"),
        ("streaming-diloco rate=inf", "is no finite number above 0"),
        ("diloco momentum=1", "is not at least 0 and below 1"),
        ("streaming-diloco momentum=nan", "is not at least 0 and below 1"),
        ("compressed share=nan", "is no share between 0 and 1"),
    ],
)
def test_what_makes_no_sense_is_told(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        parse_algorithm(text)


def test_a_network_without_units_cannot_be_divided() -> None:
    network = Mlp(inputs=2, hidden=(), classes=2)
    seat = Order(algorithm=parse_algorithm("ist"), learning=Learning(), workers=2, steps=1).seat(0)
    with pytest.raises(BadInput, match="no units"):
        parse_algorithm("ist").begin(network, Learning(), seat, network.initial(0))
