"""What a plan means on devices: tasks, the communication between them, and what they hold in memory."""
