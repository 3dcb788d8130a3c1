"""The topology daemon: one on each host assigns CPUs to jobs, and recovers them after a restart.

Pure: `state` (allocations, built from the records of the journal) and `sharing` (the CPUs of each job when jobs
share). Around them: `node` (`NodeLedger`: first the record, then the kernel, then the answer), `recovery` (the
first step after a start), `resize_requests` (asks jobs to shrink), `allocating`, `resizing` and `releasing`
(the verbs that begin, change and end an allocation), `handler` (permissions, and the answer to each request),
`protocol` (requests as lines), `server` (sockets), `commands` (its start on this host), `client`.
"""
