"""Training stacks: what each release of the software can run."""
