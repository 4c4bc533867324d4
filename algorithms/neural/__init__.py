"""Neural networks of dense layers, trained by Sandblaster L-BFGS or Downpour SGD."""
