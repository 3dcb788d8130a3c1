"""Jobs: runs that outlive the command that started them, and their records."""
