"""Bradley-Terry fitted another way: scipy's optimizer on the objective, with a Hessian made of differences."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse.csgraph import connected_components

from agents.ranking.bradley_terry import Group

Matrix = NDArray[np.float64]


def wins_of(group: Group) -> Matrix:
    """wins[i, j]: how often i won against j."""
    wins = np.zeros((group.n, group.n))
    for (i, j), ahead, behind in zip(group.pairs, group.ahead, group.behind, strict=True):
        wins[i, j], wins[j, i] = ahead, behind
    return wins


def gradient(theta: Matrix, wins: Matrix) -> Matrix:
    """Of the log likelihood without the penalty; theta may have leading axes."""
    lose = 1.0 / (1.0 + np.exp(theta[..., :, None] - theta[..., None, :]))
    return (wins * lose).sum(-1) - (wins.T * np.swapaxes(lose, -1, -2)).sum(-1)


def hessian(theta: Matrix, wins: Matrix) -> Matrix:
    """Of minus the log likelihood: central differences of its gradient."""
    moves = 1e-5 * np.eye(len(theta))
    return (gradient(theta - moves, wins) - gradient(theta + moves, wins)) / 2e-5


def scores(wins: Matrix, ridge: float) -> Matrix:
    """The maximum of the penalised likelihood."""

    def objective(theta: Matrix) -> tuple[float, Matrix]:
        loss = (wins * np.logaddexp(0.0, theta[None, :] - theta[:, None])).sum()
        return loss + ridge / 2 * (theta @ theta), ridge * theta - gradient(theta, wins)

    def curvature(theta: Matrix) -> Matrix:
        return hessian(theta, wins) + ridge * np.eye(len(theta))

    start, options = np.zeros(len(wins)), {"gtol": 1e-8}
    found: Matrix = minimize(objective, start, jac=True, hess=curvature, method="trust-exact", options=options).x
    return found


def covariance(theta: Matrix, wins: Matrix, ridge: float) -> Matrix:
    """P (H + ridge I)^-1 P within each component; zero between components."""
    whole = hessian(theta, wins)
    result = np.zeros_like(whole)
    count, labels = connected_components(wins + wins.T, directed=False)
    for label in range(count):
        own = np.flatnonzero(labels == label)
        centre = np.eye(len(own)) - 1.0 / len(own)
        inverse = np.linalg.inv(whole[np.ix_(own, own)] + ridge * np.eye(len(own)))
        result[np.ix_(own, own)] = centre @ inverse @ centre
    return result
