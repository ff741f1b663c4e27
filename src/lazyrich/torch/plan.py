"""The plan: every parameter of a model with its role and its numbers; apply it, print it, save it."""

from __future__ import annotations

import io
import json
import math
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lazyrich.errors import LazyrichError
from lazyrich.problem.parametrization import Scheme
from lazyrich.storage import write_whole
from lazyrich.torch.entries import Entry, group_settings, pooled
from lazyrich.torch.measure import Measured, whole
from lazyrich.torch.multiplier import Multiplier
from lazyrich.torch.shapes import unwrapped

if TYPE_CHECKING:
    from lazyrich.torch.audit import Audit

FORMAT = "lazyrich plan 1"
# A pool of entries is left as it was drawn where it is right within so many standard errors.
_NEAR = 4.0


# Which plan was applied to a model, and the version counters of its tensors afterwards.
_applied: weakref.WeakKeyDictionary[nn.Module, tuple[Plan, dict[str, int]]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Plan:
    """The numbers of a target model, by parameter name. Made by :func:`lazyrich.torch.plan`.

    Attributes
    ----------
    scheme : Scheme
    optimizer, decay : str
        Keys of :data:`lazyrich.problem.parametrization.OPTIMIZERS` and ``DECAYS``.
    base, target : str
        What the two models were built with.
    entries : tuple of Entry
    multipliers : dict
        Names of :class:`Multiplier` modules to their factors.
    depths : dict
        Names of repeated blocks to (blocks of the base, blocks of the target).
    blocks : tuple of str
        Names of all these blocks in the target.
    reasons : dict
        Role to setting to (formula, reason, source).
    notes : tuple of str
        What the plan does not cover, and what was not verified.
    """

    scheme: Scheme
    optimizer: str
    decay: str
    base: str
    target: str
    entries: tuple[Entry, ...]
    multipliers: Mapping[str, float]
    depths: Mapping[str, tuple[int, int]]
    blocks: tuple[str, ...]
    reasons: Mapping[str, Mapping[str, tuple[str, str, str]]]
    notes: tuple[str, ...]

    @property
    def at_base(self) -> bool:
        """Whether nothing differs from the base model."""
        return all(entry.unchanged for entry in self.entries)

    # ---- Apply -------------------------------------------------------------------------------------------------------

    def matched(self, model: nn.Module) -> list[tuple[Entry, Tensor]]:
        """The entries with the tensors of a model, wrapped or not.

        Raises
        ------
        LazyrichError
            When the model is not the one that was planned.
        """
        known = {name: entry for entry in self.entries for name in (entry.name, *entry.aliases)}
        found: dict[str, tuple[Entry, Tensor]] = {}
        for wrapped, parameter in model.named_parameters(remove_duplicate=False):
            name = unwrapped(wrapped, known)
            if name not in known:
                raise LazyrichError(name, "is not in the plan", "plan this model, or use the plan's own one")
            entry = known[name]
            first = found.setdefault(entry.name, (entry, parameter))[1]
            if first is not parameter:
                what = f"is not one tensor with {entry.name}, as in the plan"
                raise LazyrichError(name, what, "tie the two before applying the plan, or plan the untied model")
            if tuple(parameter.shape) != entry.shape:
                what = f"has shape {tuple(parameter.shape)}, planned {entry.shape}"
                raise LazyrichError(name, what, "build the model that was planned as target")
        for entry in self.entries:
            if entry.name not in found:
                raise LazyrichError(entry.name, "is missing in the model", "build the model that was planned as target")
        return list(found.values())

    def initialize_(self, model: nn.Module, *, force: bool = False) -> None:
        """Bring the model's own initialisation to the planned scale, in place, and set its multipliers.

        The draws stay the model's own: each tensor is multiplied by one number, and not at all where its scale is right
        already, so at the base size nothing changes. Frozen parameters are left alone. A second call changes nothing.

        Parameters
        ----------
        model : Module
            The target as its constructor leaves it; wrapped by DDP, FSDP2 or torch.compile or not.
        force : bool
            Also where the model seems to be trained or loaded already.

        Raises
        ------
        LazyrichError
            For another model, one on the meta device, one with another plan applied, or one that has been trained.
        """
        pairs = self.matched(model)
        record = _applied.get(_inner(model))
        versions = {entry.name: parameter._version for entry, parameter in pairs}
        if record is not None and not force:
            if record[0] != self:
                raise LazyrichError("initialize_", "another plan was applied to this model", "build the model anew")
            if record[1] == versions:
                return
            raise LazyrichError("initialize_", "the model has been trained or loaded since", "pass force=True if meant")
        pools = pooled(pairs)
        if not force:
            self._refuse_trained(pairs, pools)
        with torch.no_grad():
            for entry, parameter in pairs:
                factor = self._correction(entry, pools[entry.pool])
                if factor is None:
                    parameter.fill_(entry.value)
                elif factor != 1.0:
                    parameter.mul_(factor)
        self._set_multipliers(model)
        _applied[_inner(model)] = self, {entry.name: parameter._version for entry, parameter in pairs}

    def _correction(self, entry: Entry, found: Measured) -> float | None:
        """What to multiply the tensor by; None to fill it with its constant."""
        if not entry.trained or entry.unchanged:
            return 1.0
        if entry.start == "constant":
            return 1.0 if found.constant and found.value == entry.value else None
        if found.value == 0.0:
            what = "is all zero, and the base model draws it at random"
            raise LazyrichError(entry.name, what, "build the model with its own initialisation")
        allowed = _NEAR * math.hypot(found.error, entry.base_error)
        if abs(entry.value / found.value - 1.0) <= allowed:
            return 1.0
        # what the draws lack, and what was moved in: where nothing is lacking, all equivalent forms have the same draws
        lacking = entry.value / entry.moved / found.value
        return entry.moved if abs(lacking - 1.0) <= allowed else entry.moved * lacking

    def _refuse_trained(self, pairs: list[tuple[Entry, Tensor]], pools: Mapping[str, Measured]) -> None:
        for entry, parameter in pairs:
            if parameter.grad is not None:
                raise LazyrichError(
                    entry.name, "has a gradient: training has begun", "apply the plan before, or pass force=True"
                )
            if entry.start == "constant" and not pools[entry.pool].constant and not entry.unchanged:
                what = "is no longer constant: the model has been trained or loaded"
                raise LazyrichError(entry.name, what, "apply the plan to a fresh model, or pass force=True")

    def _set_multipliers(self, model: nn.Module) -> None:
        modules = {
            unwrapped(name, self.multipliers): module
            for name, module in model.named_modules()
            if isinstance(module, Multiplier)
        }
        for name, factor in self.multipliers.items():
            if name not in modules:
                raise LazyrichError(name, "is no Multiplier of this model", "build the model that was planned")
            modules[name].factor.fill_(factor)

    def param_groups(
        self,
        model: nn.Module,
        *,
        lr: float,
        weight_decay: float = 0.0,
        eps: float = 1e-8,
        part: str | None = None,
    ) -> list[dict[str, Any]]:
        """Plain parameter groups for an optimiser of :mod:`torch.optim`.

        Parameters
        ----------
        model : Module
            Wrapped or not; call it after wrapping by FSDP2, which replaces parameters.
        lr, weight_decay, eps : float
            The values that were tuned at the base size. Biases, gains and norms are not decayed. With a decay
            independent of the rate, a group's decay is the value divided by its rate.
        part : str, optional
            With Muon: ``"muon"`` for the groups of the block matrices, ``"adamw"`` for all others, each with its own
            `lr`.

        Returns
        -------
        list of dict
            ``params``, ``lr``, ``weight_decay``, ``eps`` where the optimiser has one, and ``name`` for the reader. One
            group for each set of values.

        Raises
        ------
        LazyrichError
            For another model, for weight decay with Adam's L2, or a missing `part`.
        """
        for where, value in (("lr", lr), ("weight_decay", weight_decay), ("eps", eps)):
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise LazyrichError(where, f"{value!r} is no setting", "give a number of at least 0")
        if self.optimizer == "adam" and weight_decay:
            what = "L2 in Adam's gradient has no rule that keeps it across sizes"
            raise LazyrichError("weight_decay", what, "plan with optimizer='adamw'")
        parts = {entry.optimizer for entry in self.entries}
        if (part is None and self.optimizer == "muon") or (part is not None and part not in parts):
            raise LazyrichError(
                "part", f"{part!r} is no part of this plan", f"choose one of {', '.join(sorted(parts))}"
            )
        groups: dict[tuple[Any, ...], dict[str, Any]] = {}
        for entry, parameter in self.matched(model):
            if not entry.trained or part not in (None, entry.optimizer):
                continue
            settings = group_settings(entry, self.decay, lr=lr, weight_decay=weight_decay, eps=eps)
            group = groups.setdefault(tuple(settings.items()), {"params": [], **settings, "name": ""})
            group["params"].append(parameter)
            group["name"] = "+".join(dict.fromkeys([*filter(None, group["name"].split("+")), entry.role]))
        return list(groups.values())

    def clip_grad_norm_(self, model: nn.Module, max_norm: float) -> float:
        """Clip gradients by the global norm of the form with all factors in the forward pass.

        A factor q moved into a weight divides that weight's gradient by q. Here it is multiplied back, so that training
        is the same as with explicit factors, which it is not with :func:`torch.nn.utils.clip_grad_norm_`.

        Returns
        -------
        float
            The norm before clipping.
        """
        gradients = [(e.moved, p.grad) for e, p in self.matched(model) if p.grad is not None]
        squares = [q**2 * float(whole(gradient.detach().float().square().sum())) for q, gradient in gradients]
        norm = math.sqrt(sum(squares))
        if norm > max_norm:
            for _, gradient in gradients:
                gradient.mul_(max_norm / norm)
        return norm

    def audit(self, model: nn.Module, optimizer: Any = None, **expected: float) -> Audit:
        """Whether the plan is on; see :func:`lazyrich.torch.audit.audit`."""
        from lazyrich.torch.audit import audit

        return audit(self, model, optimizer, **expected)

    def theory(self) -> str:
        """What theory says about this transfer, what of it is proven; see :func:`lazyrich.torch.theory.foretell`."""
        from lazyrich.torch.theory import foretell

        return foretell(self)

    # ---- Read and write ----------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data; :func:`load_plan` reads it back, also from a checkpoint."""
        return {"format": FORMAT, **asdict(self)}

    def save(self, path: str | Path) -> None:
        """Write the plan as a JSON file, to be kept beside the checkpoints.

        Raises
        ------
        LazyrichError
            When it cannot be written.
        """
        write_whole(path, f"{json.dumps(self.to_json(), indent=1, allow_nan=False)}\n".encode())

    def rows(self) -> list[list[str]]:
        """The table, headings first; parameters of different blocks with the same numbers share a row."""
        head = ["parameters", "role", "shape", "start", "rate", "eps", "decay", "factor in the forward pass"]
        grouped: dict[tuple[str, ...], int] = {}
        for entry in self.entries:
            stack, _, within = entry.pool.rpartition(":")
            name = f"{stack}.*.{within}" if stack else " = ".join((entry.name, *entry.aliases))
            shape = "x".join(f"{size}" for size in entry.shape) or "number"
            start = f"{entry.value:.3g}" if entry.start == "constant" else f"std {entry.value:.3g}"
            decay = entry.weight_decay if entry.decayed else None
            settings = (_text(entry.learning_rate), _text(entry.eps), _text(decay))
            if not entry.trained:
                start, settings = "frozen", ("-", "-", "-")
            row = (name, entry.role, shape, start, *settings, entry.where)
            grouped[row] = grouped.get(row, 0) + 1
        return [head, *([f"{row[0]} ({count})" if count > 1 else row[0], *row[1:]] for row, count in grouped.items())]

    def __str__(self) -> str:
        from rich.console import Console

        from lazyrich.tables import plain_table

        depths = ", ".join(f"{name} {one} to {other} blocks" for name, (one, other) in self.depths.items())
        text = io.StringIO()
        console = Console(file=text, width=180, highlight=False)
        console.print(
            f"{self.scheme.title} (alpha {self.scheme.alpha:g}, gamma {self.scheme.gamma:g}), {self.optimizer}, decay "
            f"{self.decay}; base {self.base}, target {self.target}; {depths or 'no repeated blocks'}",
            "Rate, eps and decay are factors on the base model's values.",
            sep="\n",
        )
        console.print(plain_table(self.rows()))
        for name, factor in self.multipliers.items():
            console.print(f"Multiplier {name}: {factor:.6g}")
        for note in self.notes:
            console.print(f"- {note}")
        return text.getvalue()


def load_plan(source: str | Path | Mapping[str, Any]) -> Plan:
    """Read a plan from a file that :meth:`Plan.save` wrote, or from the data of :meth:`Plan.to_json`.

    Raises
    ------
    LazyrichError
        When there is none, or it is of another version.
    """
    where = "plan" if isinstance(source, Mapping) else str(source)
    try:
        content = source if isinstance(source, Mapping) else json.loads(Path(source).read_text(encoding="utf-8"))
        if content.get("format") != FORMAT:
            what = f"has format {content.get('format')!r}, not {FORMAT!r}"
            raise LazyrichError(where, what, "make the plan again with this version")
        entries = tuple(
            Entry(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})  # pyright: ignore
            for entry in content["entries"]
        )
        rest = {field.name: content[field.name] for field in fields(Plan)}
        rest |= {"scheme": Scheme(**content["scheme"]), "entries": entries, "notes": tuple(content["notes"])}
        rest["blocks"] = tuple(content["blocks"])
        rest["depths"] = {name: tuple(pair) for name, pair in content["depths"].items()}
        rest["reasons"] = {
            role: {setting: tuple(texts) for setting, texts in settings.items()}
            for role, settings in content["reasons"].items()
        }
        return Plan(**rest)
    except FileNotFoundError:
        raise LazyrichError(where, "no such file", "save the plan beside the checkpoint") from None
    except (OSError, KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LazyrichError(where, f"is no plan ({type(error).__name__})", "give what Plan.save wrote") from None


def changed_since(plan: Plan, model: nn.Module, pairs: Iterable[tuple[Entry, Tensor]]) -> bool:
    """Whether this plan was applied to the model in this process, and its parameters have changed since."""
    record = _applied.get(_inner(model))
    versions = {entry.name: parameter._version for entry, parameter in pairs}
    return record is not None and record[0] == plan and record[1] != versions


def _inner(model: nn.Module) -> nn.Module:
    """The module inside DDP and torch.compile."""
    for name in ("_orig_mod", "module"):
        inner = getattr(model, name, None)
        if isinstance(inner, nn.Module) and len(list(model.children())) == 1:
            return _inner(inner)
    return model


def _text(factor: float | None) -> str:
    return "-" if factor is None else f"{factor:.4g}"
