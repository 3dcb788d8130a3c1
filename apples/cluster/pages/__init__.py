"""Pages of a scheduler: its queue, a job, a host, and the queue under another policy."""
