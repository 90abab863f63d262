"""From a PyTorch module to a graph of operators, with a kernel for each."""
