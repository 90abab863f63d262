"""What a run takes beyond its steps: money, carbon, interruptions, and tokens until a target."""
