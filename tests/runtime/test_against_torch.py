from collections import Counter

import pytest

from tests.runtime.cases import Case, collective_cases, some_memory_cases
from tests.runtime.predicted import predict_as_issued, predict_collectives, predict_memory, predict_state

measured = pytest.importorskip("tests.runtime.measured", reason="needs torch", exc_type=ImportError)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize("case", list(collective_cases()), ids=str)
def test_collectives_are_those_that_pytorch_issues_byte_for_byte(case: Case) -> None:
    found = measured.measure_collectives(case)
    assert len(found.collectives) == found.counted  # nothing that CommDebugMode sees is missing
    assert Counter(predict_as_issued(case)) == Counter(found.collectives)


@pytest.mark.parametrize("case", [case for case in collective_cases() if not case.sp], ids=str)
def test_only_the_loss_is_issued_in_other_pieces_without_sequence_parallelism(case: Case) -> None:
    found = Counter(measured.measure_collectives(case).collectives)
    statistics = case.batch * case.seq * 4  # an fp32 number per token
    apart = Counter({("all_reduce", statistics): 3}) if case.tp > 1 else Counter()
    together = Counter({("all_reduce", 2 * statistics): 1}) if case.tp > 1 else Counter()
    assert Counter(predict_collectives(case)) - together == found - apart


@pytest.mark.parametrize("case", list(some_memory_cases()), ids=str)
def test_peak_memory_is_what_pytorch_tracks(case: Case) -> None:
    found = measured.measure_memory(case)
    ours = predict_memory(case, measured.measure_loss(case))
    assert ours["all"] == pytest.approx(found["all"], rel=0.10)
    assert ours["activations"] == pytest.approx(found["activations"], rel=0.10)


@pytest.mark.parametrize("case", list(some_memory_cases()), ids=str)
def test_state_is_what_pytorch_shards(case: Case) -> None:
    assert predict_state(case) == pytest.approx(measured.measure_state(case))
