"""What our tests and a user's own stand on: adversaries, faulty files, simulations, scripted jobs."""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
