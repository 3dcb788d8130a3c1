"""What our tests and a user's own stand on: adversaries, faulty files, simulations, scripted jobs."""
