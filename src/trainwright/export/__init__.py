"""Plans handed to the tools that people run, and their configurations read back."""
