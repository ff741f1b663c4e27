"""Where factors of the forward pass go: into weights where that is exact, into named modules where the user says so."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

from torch import nn

from lazyrich.errors import LazyrichError
from lazyrich.problem.parametrization import Growth, Monomial, Rule, Scheme, known_name, rule_for
from lazyrich.problem.rules import EQUIVALENCE_FAILS, move_factor
from lazyrich.torch.entries import Entry
from lazyrich.torch.measure import Measured
from lazyrich.torch.multiplier import Multiplier
from lazyrich.torch.overrides import Overrides
from lazyrich.torch.roles import Placed, branch_ends, head_dimension, is_norm, normalises_queries
from lazyrich.torch.shapes import Comparison, Pairing

FACTORS: Mapping[str, str] = {
    "readout": "the readout's factor: a norm or linear map in front of a tied readout, or a Multiplier",
    "branch": "the factor of residual branches: their last linear maps, or Multipliers",
    "attention": "1/head dimension instead of its square root: the query maps, or Multipliers behind them",
}


class Places:
    """Where the user wants factors."""

    def __init__(self, given: Mapping[str, str | None] | None) -> None:
        self.given = dict(given or {})
        for factor in self.given:
            known_name("multipliers", factor, FACTORS)
        self.used: set[str] = set()

    def modules(self, factor: str, model: nn.Module) -> list[tuple[str, nn.Module]]:
        """The modules that take a factor in; none if the model has it already."""
        pattern = self.given[factor]
        self.used.add(factor)
        if pattern is None:
            return []
        found = [(name, module) for name, module in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            raise LazyrichError(f"multipliers.{factor}", f"no module is called {pattern!r}", "check the pattern")
        return found

    def refuse_unused(self, model: nn.Module, compared: Comparison) -> None:
        """Raise for a factor that this model cannot have at any size, or whose place does not exist."""
        for factor in self.given.keys() - self.used:
            attentive = any(head_dimension(target) for _, _, target in compared.modules)
            if not {"readout": True, "branch": bool(compared.stacks), "attention": attentive}[factor]:
                raise LazyrichError(f"multipliers.{factor}", "this model has no such factor", "leave it out")
            self.modules(factor, model)


class Moves:
    """Which factors of the forward pass each parameter takes in, and which remain in the forward pass."""

    def __init__(
        self,
        scheme: Scheme,
        optimizer: str,
        decay: str,
        compared: Comparison,
        tensors: Mapping[str, list[Pairing]],
        placed: Mapping[str, Placed],
        places: Places,
        model: nn.Module,
    ) -> None:
        self.scheme, self.optimizer, self.decay = scheme, optimizer, decay
        self.tensors, self.placed, self.model = tensors, placed, model
        self.first = {pair.name: name for name, pairs in tensors.items() for pair in pairs}
        self.into: dict[str, list[tuple[Monomial, str]]] = {}  # parameter to the factors that it takes in
        self.elsewhere: dict[str, str] = {}  # parameter to where its own factor is
        self.explicit: dict[str, float] = {}
        self.branches: dict[str, list[str]] = {}  # block to its last linear maps
        self.readout_at: list[str] = []
        self.notes: list[str] = []
        if scheme.width == "ntk":
            self._each_matrix()
        else:
            self._branch(compared, places)
        self._readout(places)
        self._attention(compared, places)

    def _rule(self, name: str) -> Rule:
        placed = self.placed[name]
        # torch.optim.Muon takes matrices only
        optimizer = "adamw" if self.optimizer == "muon" and len(self.tensors[name][0].shape) != 2 else self.optimizer
        return rule_for(placed.role, self.scheme, optimizer, placed.growth, self.decay)

    def _each_matrix(self) -> None:
        for name, placed in self.placed.items():
            if placed.role == "block":
                factor = self._rule(name).formulas["multiplier"]
                assert factor is not None
                self._take(name, factor, "its 1/sqrt(fan_in)")

    def _take(self, name: str, factor: Monomial, text: str) -> None:
        self.into.setdefault(name, []).append((factor, text))

    def _put(self, factor: Monomial, growth: Growth, where: list[tuple[str, nn.Module]], key: str, text: str) -> None:
        """Into the weights and biases of modules, or into Multipliers."""
        number = Monomial(constant=factor.at(growth))
        for name, module in where:
            if isinstance(module, Multiplier):
                self.explicit[name] = self.explicit.get(name, 1.0) * number.constant
                continue
            own = [f"{name}.{part}" if name else part for part, _ in module.named_parameters(recurse=False)]
            if not own or next(module.children(), None) is not None:
                what = f"{name} ({type(module).__name__}) is no norm, linear map or Multiplier"
                raise LazyrichError(
                    f"multipliers.{key}", what, "name a module whose output is proportional to its parameters"
                )
            for parameter in own:
                first = self.first[parameter]
                if len(self.tensors[first]) > 1:
                    raise LazyrichError(
                        f"multipliers.{key}", f"{parameter}: {EQUIVALENCE_FAILS['shared']}", "use a Multiplier"
                    )
                self._take(first, number, text)

    def _branch(self, compared: Comparison, places: Places) -> None:
        factor = Monomial(m=-self.scheme.alpha)
        if "branch" in places.given:
            chosen = places.modules("branch", self.model)
            inside = {name: [n for n, _ in chosen if n == name or n.startswith(f"{name}.")] for name in compared.blocks}
        else:
            inside = {}
            for name in compared.blocks:
                ends = branch_ends(self.model.get_submodule(name))
                inside[name] = [f"{name}.{end}" if end else name for end in ends]
        for block, ends in inside.items():
            stack, _ = compared.blocks[block]
            before, after = compared.stacks[stack]
            self.branches[block] = ends
            if self.scheme.alpha == 0.0 or before == after or places.given.get("branch", "") is None:
                continue
            if not ends:
                what = "no linear map was found at the end of its branches"
                raise LazyrichError(block, what, "name them: multipliers={'branch': 'pattern of modules'}")
            modules = [(end, self.model.get_submodule(end)) for end in ends]
            self._put(factor, Growth(depth=after / before), modules, "branch", "the branch's m^-alpha")
            for name, pairs in self.tensors.items():
                if pairs[0].name.startswith(f"{block}.") and name not in self.into:
                    self.elsewhere[name] = "m^-alpha is at the branch's end"

    def _readout(self, places: Places) -> None:
        outputs = [name for name, placed in self.placed.items() if placed.role == "output"]
        tied = [name for name, pairs in self.tensors.items() if len(pairs) > 1 and self._tied_readout(pairs)]
        for name in [*outputs, *tied]:
            growth = self.placed[name].growth
            rule = rule_for("output", self.scheme, "sgd", growth, self.decay)
            factor = rule.formulas["multiplier"]
            assert factor is not None
            if self.scheme.width == "sp" or growth.width == 1.0:
                if name in tied:
                    self.notes.append(f"{name} is tied: as embedding and readout it has the embedding's rule")
                continue
            if "readout" in places.given:
                where = places.modules("readout", self.model)
                if places.given["readout"] is None:
                    self.elsewhere[name] = f"{factor}: in the model's own code"
                    continue
                self.readout_at = [each for each, _ in where]
                if (name, "readout") not in self.elsewhere.items():
                    self._put(factor, growth, where, "readout", f"the readout's {factor}")
                self.elsewhere[name] = f"the readout's {factor} is in {', '.join(self.readout_at)}"
                if outputs[1:] or tied[1:]:
                    what = f"{len(outputs) + len(tied)} readouts cannot share it"
                    raise LazyrichError("multipliers.readout", what, "leave it out where readouts are not tied")
            elif name in tied:
                norms = [m for m, module in self.model.named_modules() if is_norm(module) and not self._in_block(m)]
                last = norms[-1] if norms else "name.of.a.Multiplier"
                raise LazyrichError(
                    name,
                    f"is shared by {' and '.join(pair.name for pair in self.tensors[name])}, so the readout's factor "
                    f"{factor} cannot move into it",
                    f"put it into what the readout reads, multipliers={{'readout': {last!r}}}, or untie the two",
                )
            else:
                self._take(name, factor, f"the readout's {factor}")
                self.readout_at = [self.tensors[name][0].name.rpartition(".")[0]]

    def _in_block(self, module: str) -> bool:
        return any(
            pair.stack and pair.name.startswith(f"{module}.") for pairs in self.tensors.values() for pair in pairs
        )

    @staticmethod
    def _tied_readout(pairs: list[Pairing]) -> bool:
        kinds = [isinstance(pair.owner, nn.Embedding | nn.EmbeddingBag) for pair in pairs]
        return any(kinds) and not all(kinds)

    def _attention(self, compared: Comparison, places: Places) -> None:
        grown: dict[str, float] = {}
        for name, base, target in compared.modules:
            sizes = head_dimension(base), head_dimension(target)
            if sizes[0] and sizes[1] and sizes[0] != sizes[1]:
                grown[name] = sizes[1] / sizes[0]
                normalised = normalises_queries(target)
                builtin = isinstance(target, nn.MultiheadAttention)
                if places.given.get("attention") is not None and normalised:
                    what = "its queries are normalised, which undoes a factor in their weights"
                    raise LazyrichError(name, what, "keep the head dimension, or scale logits in the model (None)")
                if self.scheme.width == "mup" and "attention" not in places.given:
                    what = f"its heads grow from {sizes[0]} to {sizes[1]}: logits need 1/head dimension"
                    if builtin:
                        what += ", and torch.nn.MultiheadAttention has no scale"
                    remedy = (
                        "grow the number of heads instead, or say where the factor goes: multipliers={'attention': "
                    )
                    raise LazyrichError(name, what, f"{remedy}'*.q_proj'}}, or None if the model has it")
        if not grown:
            return
        if self.scheme.width == "mup" and places.given["attention"] is not None:
            ratios = set(grown.values())
            if len(ratios) > 1:
                raise LazyrichError(
                    "multipliers.attention", "head dimensions grow differently", "scale them in the model"
                )
            factor = Monomial(constant=ratios.pop() ** -0.5)
            self._put(factor, Growth(), places.modules("attention", self.model), "attention", "the logits' d^-1/2")
        elif "attention" in places.given:
            places.used.add("attention")

    def entry(
        self, name: str, aliases: list[Pairing], pool: str, start: Measured, trained: bool, overrides: Overrides
    ) -> tuple[Entry, Rule]:
        """The numbers of one tensor, and its rule before anything is moved."""
        rule, pairing, placed = self._rule(name), aliases[0], self.placed[name]
        moved, texts = Monomial(), []
        for factor, text in self.into.get(name, []):
            rule, moved = move_factor(rule, factor), moved * factor
            texts.append(f"{text} is in here")
        set_by_user = overrides.of(name)
        init = rule.init_std
        if start.constant:  # constants carry factors that were moved into them, and no rule for standard deviations
            init = moved.at(placed.growth)
        if "init_std" in set_by_user:
            if not start.value:
                raise LazyrichError(f"overrides.{name}", "starts at zero in the base model", "draw it at random there")
            init = set_by_user["init_std"] / start.value
        eps, weight_decay = (
            set_by_user.get(key, getattr(rule, key)) if getattr(rule, key) is not None else None
            for key in ("eps", "weight_decay")
        )
        if set_by_user:
            texts.append(f"set by you: {', '.join(set_by_user)}")
        growth = placed.growth
        assert growth.fan_in is not None and growth.fan_out is not None
        where = "; ".join(texts) or self.elsewhere.get(name, "")
        return Entry(
            name,
            tuple(pair.name for pair in aliases[1:]),
            pairing.shape,
            pairing.base_shape,
            placed.role,
            pool,
            growth.depth,
            growth.width,
            growth.fan_in,
            growth.fan_out,
            placed.vector,
            trained,
            "constant" if start.constant else "random",
            start.value,
            start.error,
            init,
            set_by_user.get("learning_rate", rule.learning_rate),
            eps,
            weight_decay,
            moved.at(growth),
            where,
            rule.optimizer,
        ), self._rule(name)
