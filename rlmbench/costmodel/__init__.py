"""Work, depth and memory of a step: the paper's model (`paper`), the exact one of real shapes (`work`), and what follows from them."""
