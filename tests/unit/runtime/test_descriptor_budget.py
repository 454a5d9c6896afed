"""How descriptors and mappings are shared out."""

import pytest

from downrange.runtime.descriptor_budget import (
    DESCRIPTORS_PER_FILE,
    FILES_MAX,
    RESERVED,
    DescriptorBudget,
    divide,
    mappings_max,
)


@pytest.mark.parametrize("descriptors", [256, 1024, 4096, 65_536, 1 << 20])
@pytest.mark.parametrize("mappings", [1000, 65_530, 1 << 20])
def test_connections_and_files_together_stay_clear_of_both_limits(
    descriptors: int, mappings: int
) -> None:
    budget = divide(descriptors, mappings, connections_max=65_535)
    used = budget.connections + budget.files * DESCRIPTORS_PER_FILE
    assert used + RESERVED <= descriptors
    assert budget.files <= mappings // 2


def test_files_get_what_connections_cannot_use() -> None:
    assert divide(1024, 65_530, 65_535) == DescriptorBudget(connections=480, files=240)
    assert divide(1024, 65_530, 60) == DescriptorBudget(connections=60, files=450)
    assert divide(1 << 20, 1 << 30, 65_535).files == FILES_MAX


def test_a_tiny_limit_leaves_a_broker_that_can_start() -> None:
    assert divide(20, 65_530, 65_535) == DescriptorBudget(connections=1, files=8)


def test_the_kernel_says_how_many_mappings_there_may_be() -> None:
    assert mappings_max() > 0
