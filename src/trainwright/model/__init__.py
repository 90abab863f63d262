"""Models as graphs of operators over named dims."""
