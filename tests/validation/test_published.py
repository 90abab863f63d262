"""Predictions against the catalog's own table of published runs; the tolerances may only tighten."""

from functools import cache

import numpy as np
import pytest

from trainwright.cost.load import load_constants
from trainwright.validate.compare import Errors, errors_by, ranges
from trainwright.validate.dataset import PUBLISHED, build_dataset, load_rows, measured, predict

# Median absolute error of step time by source, as measured when the constants were last fitted, rounded up.
TOLERANCE = {
    "BigScience BLOOM production run": 0.05,
    "BigScience BLOOM tr11 tuning chronicles": 0.08,
    "BloombergGPT paper Table 4": 0.45,
    "Google gpu-recipes logs": 0.08,
    "Hagemann et al. 2023 layouts": 0.09,
    "Korthikanti et al. 2022 Table 5": 0.04,
    "MaxText README tables": 0.10,  # 0.08 before NVIDIA's faster runs of MaxText were fitted: decision 22
    "NVIDIA Megatron-Bridge performance summary": 0.125,  # 0.10 before pipelines were followed: decision 7
    "NVIDIA NeMo 24.07 performance summary": 0.06,
    "NVIDIA NeMo-Framework-Launcher README": 0.20,
    "NVIDIA/Megatron-LM README": 0.04,
    "NVIDIA/Megatron-LM README 2020": 0.06,
    "NVIDIA/Megatron-LM README Jan 2021": 0.05,
    "Narayanan et al. 2021 (Megatron SC21) Table 1": 0.04,
    "OneFlow DLPerf GPT": 0.145,
    "Ultra-Scale Playbook interactive benchmark": 0.20,
    "mosaicml/llm-foundry": 0.06,
    "pytorch/torchtitan": 0.10,
    "vTrain (MICRO 24) ground truth single-node": 0.09,
}


@cache
def published() -> dict[str, Errors]:
    constants = load_constants()
    dataset = build_dataset(load_rows(PUBLISHED), constants.stack)
    predictions = predict(dataset, constants.stack, constants.efficiency)
    return {e.name: e for e in errors_by(dataset, predictions, ranges(dataset, constants), "source")}


def test_every_row_is_cited_and_predicted() -> None:
    rows = load_rows(PUBLISHED)
    assert all(row["citation"] and row["source"] for row in rows)
    constants = load_constants()
    dataset = build_dataset(rows, constants.stack)
    assert not any(dataset.reasons)
    assert np.isfinite(predict(dataset, constants.stack, constants.efficiency).step_s).all()


@pytest.mark.parametrize("source", TOLERANCE)
def test_a_source_is_predicted_within_its_tolerance(source: str) -> None:
    assert published()[source].median <= TOLERANCE[source]


def test_no_source_goes_unwatched() -> None:
    assert set(published()) - {"all"} == set(TOLERANCE)


def test_the_mean_error_on_megatrons_papers_stays_below_that_of_other_tools() -> None:
    # Published figures of other tools: Calculon 3.65 % and 10.5 %, SimuMax 6.2 % and about 7 %.
    assert published()["Korthikanti et al. 2022 Table 5"].mean <= 0.036
    assert published()["Narayanan et al. 2021 (Megatron SC21) Table 1"].mean <= 0.06


def test_memory_is_predicted_where_it_was_reported() -> None:
    constants = load_constants()
    dataset = build_dataset(load_rows(PUBLISHED), constants.stack)
    predicted = predict(dataset, constants.stack, constants.efficiency).memory_bytes
    error = np.abs(predicted / measured(dataset)["memory_bytes"] - 1.0)
    assert np.nanmedian(error) <= 0.10
