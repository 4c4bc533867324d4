"""Methods of the minimisers: L-BFGS, Newton, conjugate gradients, line searches and preconditioners."""
