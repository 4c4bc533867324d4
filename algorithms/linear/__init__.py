"""Linear models: estimators, `losses`, and two families of solvers.

`sparse` fits l1 penalties on a working set of columns; `glm` fits squared penalties over rows; `cv` chooses
penalties by cross-validation. `glm.choose` holds the rules that choose a solver. Related methods, by use:

==================================  =====================================================================
quadratic plus weighted l1
==================================  =====================================================================
``structured.solving``              least squares on columns, float32 around an exact anchor, or sparse
``subproblems.gram``                least squares on products of columns, once these are cheaper
``kernels.sparse_newton``           second-order model of a loss of rows: their weights change at each step
``kernels.class_newton``            the same of several classes, whose Hessian couples them
``optimize.sparse_quadratic``       a whole Hessian of up to 2,000 parameters, for `glm` with l1
==================================  =====================================================================

==================================  =====================================================================
Newton's method
==================================  =====================================================================
``optimize.newton``                 all parameters: Cholesky, conjugate gradients, or proximal with l1
``subproblems.gram``                semismooth, in the dual of the lasso on products of columns
``glm.row_newton``                  space of the rows, one predictor: also L-BFGS, and line search by slope
``glm.row_space``                   space of the rows, K classes: L-BFGS on vectors of n K numbers
``glm.ridge_system``                ridge: one system as large as columns or rows, or short iterations
==================================  =====================================================================
"""
