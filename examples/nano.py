"""2WL, gradient boosting with two weak learners, in one page (Treviño Gavito, Klabjan and Utke, Algorithm 1).

A sample has a class c and two views: U suits a network (an image, say), S suits a tree (a table). The model
is one function f of both. It gives each of the M classes a score, and the largest score is the answer.

    f = 0
    in each round:
        w = what the risk wants f to change by, sample by sample
        g = a network, fitted to w on U
        h = a tree, fitted to w on S
        epsilon, delta = the steps that make the risk of f + epsilon g + delta h as low as it can be
        f = f + epsilon g + delta h

The letters are the paper's (docs/methods.md has the formulas). `python examples/nano.py` takes seconds. The
library does the same with more options: a test holds it to this page.
"""

import numpy as np
import torch
from sklearn.tree import DecisionTreeRegressor
from torch import nn

# The risk. Class k has the codeword y^k, the k-th unit vector, and a sample of class c loses
# sum_k exp(-<f, y^c - y^k> / 2): little where f gives its own class more than all others.


def margins(f, c):
    """<f, y^c - y^k> for every sample and class k: how far the own class is ahead of class k, (n, M)."""
    return f[np.arange(len(c)), c][:, None] - f


def exponentials(f, c):
    """e_k = exp(-margin_k / 2), and 0 for the own class, whose term is 1 whatever f is, (n, M)."""
    e = np.exp(-margins(f, c) / 2)
    e[np.arange(len(c)), c] = 0
    return e


def risk(f, c):
    """R(f), the mean loss: M at f = 0, and never below 1."""
    return 1 + exponentials(f, c).sum(axis=1).mean()


def negative_gradient(f, c):
    """w = sum_k (y^c - y^k) e_k / 2 (equation 1): up for the own class, down for classes too near, (n, M)."""
    e = exponentials(f, c)
    w = -e / 2
    w[np.arange(len(c)), c] = e.sum(axis=1) / 2
    return w


# The two weak learners. Both are fitted to w by least squares, and neither knows of the other.


def fit_network(U, w, seed, hidden=32, passes=4, batch=32, rate=0.2):
    """g: one hidden layer, trained by gradient descent on small batches."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(U.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, w.shape[1]))
    U, w = torch.from_numpy(U), torch.from_numpy(w).float()
    order = torch.Generator().manual_seed(seed)
    for _ in range(passes):
        for rows in torch.randperm(len(U), generator=order).split(batch):
            network.zero_grad()
            (network(U[rows]) - w[rows]).square().mean().backward()
            with torch.no_grad():
                for weights in network.parameters():
                    weights -= rate * weights.grad
    return lambda U: network(torch.from_numpy(U)).detach().double().numpy()


def fit_tree(S, w, seed, depth=3, leaf=20):
    """h: a shallow tree, whose leaves hold the mean w of the samples in them."""
    tree = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=leaf, random_state=seed)
    return tree.fit(S, w).predict


# The steps. R(f + epsilon g + delta h) is a sum of exponentials of straight lines, so it is convex in
# (epsilon, delta), and Newton's method finds its lowest point.


def best_steps(f, g, h, c, iterations=50, tolerance=1e-10):
    """(epsilon, delta) of the lowest risk, where g and h are the learners' outputs, (n, M)."""

    def moved(steps):
        return f + steps[0] * g + steps[1] * h

    slopes = np.stack([-margins(g, c) / 2, -margins(h, c) / 2])  # of the exponents, (2, n, M)
    steps = np.zeros(2)
    for _ in range(iterations):
        here, terms = risk(moved(steps), c), exponentials(moved(steps), c) / len(c)
        gradient = np.einsum("vik,ik->v", slopes, terms)
        hessian = np.einsum("uik,vik,ik->uv", slopes, slopes, terms)
        direction = -np.linalg.pinv(hessian) @ gradient
        if -gradient @ direction <= tolerance * here:  # nothing more to gain
            break
        while risk(moved(steps + direction), c) > here:  # too far for a parabola to be right
            direction = direction / 2
        steps = steps + direction
    return steps


# The loop. A round's random numbers follow from the seed and the round alone.


def boost(U, S, c, rounds, seed=0):
    """Algorithm 1 on U (n, p) and S (n, q), both float32, and classes c (n,): yields each round's
    g and h, epsilon and delta, and the risk after it."""
    f = np.zeros((len(c), c.max() + 1))
    for t in range(1, rounds + 1):
        for_g, for_h = np.random.SeedSequence((seed, t)).generate_state(2).tolist()
        w = negative_gradient(f, c)
        g, h = fit_network(U, w, for_g), fit_tree(S, w, for_h)
        epsilon, delta = best_steps(f, g(U), h(S), c)
        f = f + epsilon * g(U) + delta * h(S)
        yield g, h, epsilon, delta, risk(f, c)


# Made data. A part is photographed upright or lying, and is loose or tight: four classes. The image shows
# the first alone, the table says the second alone, so either view by itself is right in half of the cases.


def make_data(n, seed):
    """U, images of 8 x 8 pixels as rows of 64; S, a table of 4 columns; and c, one of four classes."""
    rng = np.random.default_rng(seed)
    upright, loose = rng.integers(0, 2, n), rng.integers(0, 2, n)
    stripes = np.sin(np.arange(8) + rng.uniform(0, 3, (n, 1)))
    lying = np.repeat(stripes[:, :, None], 8, axis=2)
    images = np.where(upright[:, None, None], lying.transpose(0, 2, 1), lying)
    table = rng.normal(size=(n, 4))
    table[:, 0] += 3 * loose * np.sign(table[:, 1])  # if loose, it is off to the side that column 1 says
    U = (images + 0.3 * rng.normal(size=images.shape)).reshape(n, 64).astype(np.float32)
    return U, table.astype(np.float32), 2 * upright + loose


if __name__ == "__main__":
    U, S, c = make_data(1000, seed=0)
    U_val, S_val, c_val = make_data(1000, seed=1)
    of_U = of_S = np.zeros((len(c_val), 4))
    for t, (g, h, epsilon, delta, R) in enumerate(boost(U, S, c, rounds=20), start=1):
        of_U, of_S = of_U + epsilon * g(U_val), of_S + delta * h(S_val)
        accuracy = np.mean((of_U + of_S).argmax(axis=1) == c_val)
        print(f"round {t:2}  risk {R:.4f}  validation accuracy {accuracy:.3f}")
    for name, part in ("U", of_U), ("S", of_S):
        print(f"what {name} says alone: {np.mean(part.argmax(axis=1) == c_val):.3f}")
