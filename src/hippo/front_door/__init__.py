"""What ``import hippo`` offers: every command as a function."""
