"""What is kept on disk, by everybody, in one way."""
