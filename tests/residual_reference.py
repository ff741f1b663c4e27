"""Residual networks, their gradients and four optimisers in plain NumPy, written from the formulas alone."""

from __future__ import annotations

import numpy as np
from scipy.special import erf

PHI = {
    "linear": (lambda z: z, lambda z: np.ones_like(z)),
    "relu": (lambda z: np.maximum(z, 0), lambda z: 1.0 * (z > 0)),
    "abs": (np.abs, np.sign),
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "gelu": (
        lambda z: z * (1 + erf(z / np.sqrt(2))) / 2,
        lambda z: (1 + erf(z / np.sqrt(2))) / 2 + z * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi),
    ),
    3.0: (lambda z: np.abs(z) ** 3, lambda z: 3 * z * np.abs(z)),
    1.5: (lambda z: np.abs(z) ** 1.5, lambda z: 1.5 * np.sqrt(np.abs(z)) * np.sign(z)),
}


def centred(z):
    return z - z.mean(axis=1, keepdims=True)


class Network:
    """Weights `first` (N, D), `blocks` (L, K, N, N), `last` (C, N); every method works on rows, one per sample."""

    def __init__(self, weights, phi="relu", norm="none", means="none", branch=1.0, output=1.0):
        self.first, self.blocks, self.last = (np.array(w, dtype=float) for w in weights)
        self.phi, self.norm, self.means, self.branch, self.output = phi, norm, means, branch, output

    def outputs(self, inputs):
        self.inputs, self.levels, self.kept = inputs, [inputs @ self.first.T], []
        phi = PHI[self.phi][0]
        for matrices in self.blocks:
            x = self.levels[-1]
            c = centred(x) if self.norm == "layer" else x
            size = np.sqrt((c**2).mean(axis=1, keepdims=True) + 1e-5) if self.norm != "none" else np.ones((len(x), 1))
            z = c / size @ matrices[0].T
            z = centred(z) if self.means == "before" else z
            h = centred(phi(z)) if self.means == "after" else phi(z)
            self.kept.append((c, size, z, h))
            self.levels.append(x + self.branch * (h if len(matrices) == 1 else h @ matrices[1].T))
        return self.output * self.levels[-1] @ self.last.T

    def gradients(self, of_outputs):
        """Of a loss whose gradient with respect to the outputs just computed is given."""
        of_last = self.output * of_outputs.T @ self.levels[-1]
        g, of_blocks = self.output * of_outputs @ self.last, np.zeros_like(self.blocks)
        for index in reversed(range(len(self.blocks))):
            matrices, (c, size, z, h) = self.blocks[index], self.kept[index]
            of_h = self.branch * g
            if len(matrices) == 2:
                of_blocks[index, 1] = of_h.T @ h
                of_h = of_h @ matrices[1]
            of_z = PHI[self.phi][1](z) * (centred(of_h) if self.means == "after" else of_h)
            of_z = centred(of_z) if self.means == "before" else of_z
            of_blocks[index, 0] = of_z.T @ (c / size)
            of_u = of_z @ matrices[0]
            if self.norm != "none":
                u = c / size
                of_u = (of_u - u * (of_u * u).mean(axis=1, keepdims=True)) / size
                of_u = centred(of_u) if self.norm == "layer" else of_u
            g = g + of_u
        return [g.T @ self.inputs, of_blocks, of_last]

    @property
    def weights(self):
        return [self.first, self.blocks, self.last]


def loss_and_gradient(kind, outputs, answers):
    """Loss and its gradient with respect to the outputs; `answers` are labels, or targets for ``"mse"``."""
    if kind == "mse":
        return ((outputs - answers) ** 2).mean(), 2 * (outputs - answers) / outputs.size
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    chances = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    rows = np.arange(len(outputs))
    loss = -(shifted[rows, answers] - np.log(np.exp(shifted).sum(axis=1))).mean()
    chances[rows, answers] -= 1
    return loss, chances / len(outputs)


class Optimizer:
    """SGD, Adam, AdamW or sign descent with one rate, eps and decay for each of the three roles."""

    def __init__(self, kind, rates, eps=(0, 0, 0), decays=(0, 0, 0), momentum=0.0, betas=(0.9, 0.999)):
        self.kind, self.rates, self.eps, self.decays = kind, rates, eps, decays
        self.momentum, self.betas, self.count = momentum, betas, 0
        self.memory = [[0.0, 0.0] for _ in rates]

    def step(self, weights, gradients, schedule=1.0):
        self.count += 1
        for index, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            memory, rate, decay = self.memory[index], schedule * self.rates[index], self.decays[index]
            if self.kind == "sgd":
                memory[0] = self.momentum * memory[0] + gradient + decay * weight
                weight -= rate * memory[0]
            elif self.kind == "sign":
                weight -= rate * (np.sign(gradient) + decay * weight)
            else:
                first, second = self.betas
                memory[0] = first * memory[0] + (1 - first) * gradient
                memory[1] = second * memory[1] + (1 - second) * gradient**2
                mean, square = memory[0] / (1 - first**self.count), memory[1] / (1 - second**self.count)
                weight -= rate * (mean / (np.sqrt(square) + self.eps[index]) + decay * weight)
