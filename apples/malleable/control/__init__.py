"""Control: what agent, job manager and ranks tell each other, and the protocol that carries a command to the job.

1. `command`: the values, from a processor map (`ResizeCommand`) to the plan of a change and its notices;
   `job_file`: what the manager is told of its job; `strips`: the arithmetic of rows; `commits`: the files of
   committed states.
2. `sealing`: lines that only the two ends of a session can have written; `messages`: a request and its outcome.
3. `client`: the agent's end; `responder`: the job's end, with `server` as its sockets.

The state machines hold no socket and read no clock: `adversaries.protocol` runs all of them under faults and
an adversary.
"""
