"""What one types: a file per command."""
