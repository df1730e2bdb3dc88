from math import erfc, sqrt
def normal_cdf(z: float) -> float:
    """Phi."""
    return 0.5 * erfc(-z / sqrt(2.0))
