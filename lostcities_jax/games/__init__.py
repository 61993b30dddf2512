"""Games that lockstep solvers can run, behind one small protocol."""
