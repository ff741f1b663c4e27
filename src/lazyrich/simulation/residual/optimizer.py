"""Optimisers of residual networks: optax with each role's rate, eps and decay from the parametrization table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import optax

from lazyrich.problem.residual import WEIGHT_ROLES, ResidualProblem
from lazyrich.simulation.residual.network import Weights


@dataclass(frozen=True)
class Method:
    """What decides an optimiser's program; parts that do nothing are left out, with the memory that they would take.

    Attributes
    ----------
    optimizer : str
        ``"sgd"``, ``"adam"``, ``"adamw"`` or ``"sign"``.
    momentum, beta1, beta2 : float
        Here rather than among the settings, because ``1 - beta2`` rounds badly in single precision.
    decay : bool
        Whether there is any.
    """

    optimizer: str
    momentum: float
    beta1: float
    beta2: float
    decay: bool

    @property
    def slots(self) -> int:
        """Numbers that are remembered for every weight."""
        return 2 if self.optimizer in ("adam", "adamw") else int(self.momentum > 0)


class Settings(NamedTuple):
    """The numbers of an optimiser.

    Attributes
    ----------
    rates, epsilons, decays : Weights
        One number per role.
    schedule : array, shape (steps,)
        The factor on all rates at every step.
    """

    rates: Weights
    epsilons: Weights
    decays: Weights
    schedule: Any


def method_of(problem: ResidualProblem) -> Method:
    """The kind of optimiser that a problem asks for."""
    training = problem.training
    return Method(training.optimizer, training.momentum, training.beta1, training.beta2, training.weight_decay > 0)


def settings_of(problem: ResidualProblem) -> Settings:
    """The numbers of a problem's optimiser: those of the base size times the table's factors."""
    training, rules = problem.training, problem.rules()

    def by_role(quantity: str, base: float) -> Weights:
        return Weights(*(base * (getattr(rules[role], quantity) or 0.0) for role in WEIGHT_ROLES))

    return Settings(
        rates=by_role("learning_rate", training.learning_rate),
        epsilons=by_role("eps", training.epsilon),
        decays=by_role("weight_decay", training.weight_decay),
        schedule=training.factors(),
    )


def optimizers(method: Method, settings: Settings) -> Weights:
    """An optax transformation for each role."""
    return Weights(*(_of_role(method, settings, *numbers) for numbers in zip(*settings[:3], strict=True)))


def _of_role(
    method: Method, settings: Settings, rate: Any, epsilon: Any, decay: Any
) -> optax.GradientTransformationExtraArgs:
    decayed = [optax.add_decayed_weights(decay)] if method.decay else []
    match method.optimizer:
        case "sgd":  # decay is part of the gradient
            parts = decayed + ([optax.trace(method.momentum)] if method.momentum else [])
        case "sign":
            parts = [optax.scale_by_sign(), *decayed]
        case _:
            parts = [optax.scale_by_adam(method.beta1, method.beta2, epsilon), *decayed]
    return optax.chain(*parts, optax.scale_by_learning_rate(lambda step: rate * settings.schedule[step]))
