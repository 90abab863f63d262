"""What people read: summaries, sentences, tables, files."""
