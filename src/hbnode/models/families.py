"""What the models of an experiment need to know of a family of dynamics."""

from __future__ import annotations

from collections.abc import Callable

from ..dynamics import ANODE, GHBNODE, HBNODE, SONODE, AbstractDynamics


def is_second_order(family: type[AbstractDynamics]) -> bool:
    """Whether the state is a pair."""
    return family in (SONODE, HBNODE, GHBNODE)


def field_inputs(family: type[AbstractDynamics], n: int) -> int:
    """n* of the paper's appendix: how many numbers the field reads of a state of size n."""
    return 2 * n if family is SONODE else n


def make_dynamics(
    family: type[AbstractDynamics], field: Callable, augment: int = 0
) -> AbstractDynamics:
    """The family around a field, with the paper's learnable γ and ξ; `augment` is for ANODE."""
    return ANODE(field, augment=augment) if family is ANODE else family(field)
